"""What the sampler must draw, worked out again from an answer's own log-probabilities.

The draw of the token at position p of choice i is a pure function of (seed, i, p) and the row (include/staffel/request.h): with
a small `top_k` and more log-probabilities than that, an answer shows all candidates of each draw, so that the uniform number and
the token can be checked without another server.
"""
import dataclasses
import math

MASK = 0xffffffff


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def uniform(seed, choice, position):
    """In [0, 1)."""
    a, b, *_ = philox((position, choice, 0, 0), (seed & MASK, seed >> 32 & MASK))
    return ((a << 32 | b) >> 11) * 2.0**-53


@dataclasses.dataclass(frozen=True)
class Draws:
    """How a request draws: its fields, and the texts of tokens that its logit_bias bans."""
    seed: int
    temperature: float
    top_k: int
    banned: tuple = ()

    def distance(self, step, token, choice, position, tie=0):
        """(how far the number drawn is from the part of [0, 1) that is the token's: 0 inside; the number). `step`: the best
        log-probabilities, best first, more than candidates. Candidates stand one behind the other, the best first; those closer
        than `tie` may have changed places, the last ones with those that are none. None: not to be told, since tokens that print
        alike are shown as one."""
        at = uniform(self.seed, choice, position)
        if any("\ufffd" in name for name in [*step, token]):
            return None, at
        logprobs = {name: logprob for name, logprob in step.items() if name not in self.banned}
        order = sorted(logprobs.values(), reverse=True)[:self.top_k]
        own = logprobs.get(token, -math.inf)
        if own < order[-1] - tie:
            return 1, at

        def share(of):
            return sum(math.exp((x - order[0]) / self.temperature) for x in of) / total
        total = 1
        total = share(order)
        if tie == 0:   # as they stand, equal ones too
            names = list(logprobs)
            begin = share(order[:names.index(token)])
            end = begin + share([own])
        else:
            begin = share(x for x in order if x > own + tie)
            end = begin + share(x for x in logprobs.values() if abs(x - own) <= tie)
        return max(begin - at, at - end, 0), at
