"""Equal answers, or a near tie: the rule by which greedy texts of two layouts are compared."""

# Sums over ranks are rounded in another order than one rank's, so that log-probabilities differ in the last bits of the
# activations' format. Two tokens whose log-probabilities are closer than this may change places.
NEAR_TIE = .1


def tokens_of(reply):
    """Token ids and the alternatives of each step of a completion with logprobs and return_token_ids."""
    choice = reply.json["choices"][0]
    return choice["token_ids"], choice["logprobs"]["top_logprobs"], choice["logprobs"]["tokens"]


def assert_same(test, expected, got, what):
    """Both are replies of /v1/completions with logprobs >= 2 and return_token_ids; whether they are equal."""
    return assert_same_tokens(test, tokens_of(expected), tokens_of(got), what)


def assert_same_tokens(test, expected, got, what):
    """Both are of tokens_of or tokens_of_stream."""
    want, alternatives, names = expected
    have, _, have_names = got
    if want == have:
        return True
    at = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b), min(len(want), len(have)))
    test.assertLess(at, min(len(want), len(have)), f"{what}: one answer is longer: {want} and {have}")
    step = alternatives[at]
    test.assertIn(have_names[at], step, f"{what}: token {at} is {have_names[at]!r}, not among the best {list(step)}")
    gap = step[names[at]] - step[have_names[at]]
    test.assertLessEqual(gap, NEAR_TIE, f"{what}: token {at} is {have_names[at]!r}, not {names[at]!r}, which leads by {gap:.3f}")
    return False


def tokens_of_stream(reply):
    """The same of a stream."""
    ids, alternatives, names = [], [], []
    for chunk in reply.chunks:
        for choice in chunk["choices"]:
            ids += choice.get("token_ids") or []
            if choice.get("logprobs"):
                alternatives += choice["logprobs"]["top_logprobs"]
                names += choice["logprobs"]["tokens"]
    return ids, alternatives, names
