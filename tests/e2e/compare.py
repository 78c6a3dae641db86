"""Equal answers, or a near tie: the rules by which texts of two layouts are compared."""

# Sums over ranks are rounded in another order than one rank's, so that log-probabilities differ in the last bits of the
# activations' format. Two tokens whose log-probabilities are closer than this may change places.
NEAR_TIE = .1
# An answer is printed and read again in float32; a draw this close to a border may be on either side of it.
OWN_ROUNDING = 1e-4


def tokens_of(reply):
    """Token ids and the alternatives of each step of a completion with logprobs and return_token_ids."""
    return tokens_of_choice(reply.json["choices"][0])


def tokens_of_choice(choice):
    return choice["token_ids"], choice["logprobs"]["top_logprobs"], choice["logprobs"]["tokens"]


def parting(test, want, have, what):
    """The first place where they differ; None: nowhere."""
    if want == have:
        return None
    at = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b), min(len(want), len(have)))
    test.assertLess(at, min(len(want), len(have)), f"{what}: one answer is longer: {want} and {have}")
    return at


def assert_same(test, expected, got, what):
    """Both are replies of /v1/completions with logprobs >= 2 and return_token_ids; whether they are equal."""
    return assert_same_tokens(test, tokens_of(expected), tokens_of(got), what)


def assert_same_tokens(test, expected, got, what):
    """Both are of tokens_of or tokens_of_stream."""
    want, alternatives, names = expected
    have, _, have_names = got
    at = parting(test, want, have, what)
    if at is None:
        return True
    step = alternatives[at]
    test.assertIn(have_names[at], step, f"{what}: token {at} is {have_names[at]!r}, not among the best {list(step)}")
    gap = step[names[at]] - step[have_names[at]]
    test.assertLessEqual(gap, NEAR_TIE, f"{what}: token {at} is {have_names[at]!r}, not {names[at]!r}, which leads by {gap:.3f}")
    return False


def assert_drawn(test, choice, draws, prompt_tokens, what):
    """Every token of a choice is what its seed draws from the choice's own log-probabilities."""
    for i, (_, step, name) in enumerate(zip(*tokens_of_choice(choice))):
        off, at = draws.distance(step, name, choice["index"], prompt_tokens + i)
        test.assertLessEqual(off or 0, OWN_ROUNDING,
                             f"{what}: token {i} is {name!r}, but the number drawn, {at:.6f}, is {off} away from it: {step}")


def assert_same_draws(test, expected, got, draws, prompt_tokens, what):
    """Two choices of one seed: equal, or they part where the number drawn is as close to the other token as a near tie can bring it.

    Near ties may have changed places. Beside that, where one set of tokens gains NEAR_TIE on the rest, its share F of the
    probability moves by F (1 - F) NEAR_TIE / temperature, and F (1 - F) is 1/4 at most.
    """
    (want, alternatives, _), (have, _, names) = tokens_of_choice(expected), tokens_of_choice(got)
    i = parting(test, want, have, what)
    if i is None:
        return True
    off, at = draws.distance(alternatives[i], names[i], expected["index"], prompt_tokens + i, NEAR_TIE)
    test.assertLessEqual(off or 0, NEAR_TIE / draws.temperature / 4,
                         f"{what}: token {i} is {names[i]!r}, but the number drawn, {at:.4f}, is {off} away from it: {alternatives[i]}")
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
