#include "grammar/number_range.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace staffel::grammar {
namespace {

constexpr int kWholeDigits = 18, kFractionDigits = 17, kExponentDigits = 2;
constexpr int64_t kDivisorMax = 9999;
constexpr size_t kDivisorFractionMax = 6;
constexpr size_t kBoundDigitsMax = 400;

// Expressions over digits for one comparison. Leading zeros and lengths are left to the expression
// of all numbers, which results are intersected with.
class Digits {
 public:
  explicit Digits(ExprPool& pool) : pool_(pool) {
    any_ = pool.Repeat(Digit('0', '9'), 0, kUnbounded);
  }

  ExprId Digit(char first, char last) {
    if (first > last) return pool_.Never();
    return pool_.Chars(CharSet::Range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)),
                       Encoding::kRaw);
  }
  ExprId Times(int min, int max) { return pool_.Repeat(Digit('0', '9'), min, max); }
  ExprId Text(std::string_view text) { return pool_.Literal(text); }
  ExprId AnyMagnitude() { return pool_.Sequence({Digit('0', '9'), any_, AnyFraction()}); }

  // Magnitudes above d, or d itself too.
  ExprId Above(const Decimal& d, bool strict) {
    const std::string whole = d.whole.empty() ? "0" : d.whole;
    std::vector<ExprId> greater = {
        pool_.Sequence({Digit('1', '9'), Times(static_cast<int>(whole.size()), kUnbounded)})};
    for (size_t i = 0; i < whole.size(); ++i) {
      greater.push_back(SameUntil(
          whole, i, whole[i] + 1, '9',
          Times(static_cast<int>(whole.size() - i - 1), static_cast<int>(whole.size() - i - 1))));
    }
    std::vector<ExprId> fraction;
    const std::string& f = d.fraction;
    if (f.empty() && !strict) {
      fraction.push_back(AnyFraction());
    } else {
      std::vector<ExprId> digits;
      for (size_t i = 0; i < f.size(); ++i) {
        digits.push_back(SameUntil(f, i, f[i] + 1, '9', any_));
      }
      digits.push_back(strict ? pool_.Sequence({Text(f), Zeros(), Digit('1', '9'), any_})
                              : pool_.Sequence({Text(f), any_}));
      fraction.push_back(pool_.Sequence({Text("."), pool_.Choice(digits)}));
    }
    return pool_.Choice({pool_.Sequence({pool_.Choice(greater), AnyFraction()}),
                         pool_.Sequence({Text(whole), pool_.Choice(fraction)})});
  }

  // Magnitudes below d, or d itself too.
  ExprId Below(const Decimal& d, bool strict) {
    const std::string whole = d.whole.empty() ? "0" : d.whole;
    std::vector<ExprId> less;
    if (whole.size() > 1) {
      less.push_back(
          pool_.Sequence({Digit('0', '9'), Times(0, static_cast<int>(whole.size()) - 2)}));
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      less.push_back(SameUntil(
          whole, i, '0', whole[i] - 1,
          Times(static_cast<int>(whole.size() - i - 1), static_cast<int>(whole.size() - i - 1))));
    }
    std::vector<ExprId> fraction;
    const std::string& f = d.fraction;
    if (f.empty()) {
      if (!strict) {
        fraction = {pool_.Empty(), pool_.Sequence({Text("."), Digit('0', '0'), Zeros()})};
      }
    } else {
      std::vector<ExprId> digits;
      for (size_t i = 0; i < f.size(); ++i) {
        digits.push_back(SameUntil(f, i, '0', f[i] - 1, any_));
        if (i > 0) digits.push_back(Text(std::string_view(f).substr(0, i)));
      }
      if (!strict) digits.push_back(pool_.Sequence({Text(f), Zeros()}));
      fraction = {pool_.Empty(), pool_.Sequence({Text("."), pool_.Choice(digits)})};
    }
    return pool_.Choice({pool_.Sequence({pool_.Choice(less), AnyFraction()}),
                         pool_.Sequence({Text(whole), pool_.Choice(fraction)})});
  }

 private:
  ExprId Zeros() { return pool_.Repeat(Digit('0', '0'), 0, kUnbounded); }
  ExprId AnyFraction() {
    return pool_.Optional(pool_.Sequence({Text("."), Digit('0', '9'), any_}));
  }
  // The first i digits of `digits`, then one of [first, last], then `rest`.
  ExprId SameUntil(std::string_view digits, size_t i, int first, int last, ExprId rest) {
    return pool_.Sequence({Text(digits.substr(0, i)),
                           Digit(static_cast<char>(first), static_cast<char>(last)), rest});
  }

  ExprPool& pool_;
  ExprId any_;
};

ExprId AtLeast(ExprPool& pool, const Decimal& bound, bool strict) {
  Digits digits(pool);
  if (!bound.negative) return digits.Above(bound, strict);
  Decimal magnitude = bound;
  magnitude.negative = false;
  return pool.Choice(
      {digits.AnyMagnitude(), pool.Sequence({pool.Literal("-"), digits.Below(magnitude, strict)})});
}

ExprId AtMost(ExprPool& pool, const Decimal& bound, bool strict) {
  Digits digits(pool);
  if (bound.negative) {
    Decimal magnitude = bound;
    magnitude.negative = false;
    return pool.Sequence({pool.Literal("-"), digits.Above(magnitude, strict)});
  }
  const ExprId negative =
      bound.IsZero() && strict ? digits.Above(bound, true) : digits.AnyMagnitude();
  return pool.Choice({digits.Below(bound, strict), pool.Sequence({pool.Literal("-"), negative})});
}

ExprId Whole(ExprPool& pool, int digits_max, bool sign_of_zero) {
  Digits digits(pool);
  const ExprId minus = pool.Optional(pool.Literal("-"));
  const ExprId positive = pool.Sequence({digits.Digit('1', '9'), digits.Times(0, digits_max - 1)});
  const ExprId zero = pool.Literal("0");
  if (sign_of_zero) return pool.Sequence({minus, pool.Choice({zero, positive})});
  return pool.Choice({zero, pool.Sequence({minus, positive})});
}

struct Divisor {
  int64_t units;  // of 10^-fraction
  size_t fraction;
};

Result<Divisor> ToDivisor(const Decimal& d) {
  const std::string digits = d.whole + d.fraction;
  if (digits.size() > 12 || d.fraction.size() > kDivisorFractionMax) {
    return absl::InvalidArgumentError("multipleOf has too many digits");
  }
  const int64_t units = std::stoll(digits);
  if (units > kDivisorMax) {
    return absl::InvalidArgumentError(
        StrCat("multipleOf is supported up to ", kDivisorMax, " units of its last digit"));
  }
  return Divisor{units, d.fraction.size()};
}

// Texts of numbers that are multiples: the remainder of the digits so far, and how many of them
// stand behind the point.
CharDfa Multiples(const Divisor& divisor) {
  const int64_t m = divisor.units;
  const int places = static_cast<int>(divisor.fraction);
  const auto whole = [](int64_t r) { return static_cast<int>(2 + r); };
  const auto behind = [&](int place, int64_t r) { return static_cast<int>(2 + m + place * m + r); };
  std::vector<CharDfa::State> states(2 + m * (places + 2));
  const auto digits = [](CharDfa::State& state, auto target_of) {
    for (int x = 0; x < 10; ++x) {
      const uint32_t c = '0' + static_cast<uint32_t>(x);
      state.edges.push_back({{c, c}, target_of(x)});
    }
  };
  const auto divides = [&](int64_t r, int missing) {
    for (int i = 0; i < missing; ++i) r = r * 10 % m;
    return r % m == 0;
  };
  states[0].edges.push_back({{'-', '-'}, 1});
  for (int s = 0; s < 2; ++s) digits(states[s], [&](int x) { return whole(x % m); });
  for (int64_t r = 0; r < m; ++r) {
    CharDfa::State& state = states[whole(r)];
    state.accepts = divides(r, places);
    if (places > 0) state.edges.push_back({{'.', '.'}, behind(0, r)});
    digits(state, [&](int x) { return whole((10 * r + x) % m); });
    for (int place = 0; place <= places; ++place) {
      CharDfa::State& fraction = states[behind(place, r)];
      fraction.accepts = place > 0 && divides(r, places - place);
      if (place < places) {
        digits(fraction, [&](int x) { return behind(place + 1, (10 * r + x) % m); });
      } else if (place > 0) {
        fraction.edges.push_back({{'0', '0'}, behind(place, r)});
      }
    }
  }
  return CharDfa(std::move(states));
}

bool IsMultiple(const Decimal& value, const Decimal& of) {
  const size_t places = std::max(value.fraction.size(), of.fraction.size());
  const auto scaled = [&](const Decimal& d) {
    return d.whole + d.fraction + std::string(places - d.fraction.size(), '0');
  };
  const std::string divisor = scaled(of);
  if (divisor.size() > 17) return false;
  const __int128 m = std::stoll(divisor);
  __int128 remainder = 0;
  for (char c : scaled(value)) remainder = (remainder * 10 + (c - '0')) % m;
  return remainder == 0;
}

}  // namespace

bool NumberBounds::Contains(const Decimal& value) const {
  if (integer && !value.IsInteger()) return false;
  if (min && (value < *min || (min_exclusive && value == *min))) return false;
  if (max && (value > *max || (max_exclusive && value == *max))) return false;
  return std::all_of(multiples_of.begin(), multiples_of.end(),
                     [&](const Decimal& m) { return IsMultiple(value, m); });
}

ExprId AnyIntegerExpr(ExprPool& pool) { return Whole(pool, kWholeDigits, false); }

ExprId AnyNumberExpr(ExprPool& pool) {
  Digits digits(pool);
  const ExprId fraction = pool.Sequence({pool.Literal("."), digits.Times(1, kFractionDigits)});
  const ExprId exponent =
      pool.Sequence({pool.Chars(CharSet::Of("eE"), Encoding::kRaw),
                     pool.Optional(pool.Chars(CharSet::Of("+-"), Encoding::kRaw)),
                     digits.Times(1, kExponentDigits)});
  return pool.Sequence(
      {Whole(pool, kWholeDigits, true), pool.Optional(fraction), pool.Optional(exponent)});
}

Result<ExprId> BoundedNumber(ExprPool& pool, const NumberBounds& bounds) {
  if (bounds.unbounded()) return bounds.integer ? AnyIntegerExpr(pool) : AnyNumberExpr(pool);
  size_t whole = kWholeDigits, fraction = kFractionDigits;
  for (const std::optional<Decimal>& bound : {bounds.min, bounds.max}) {
    if (!bound) continue;
    whole = std::max(whole, bound->whole.size());
    fraction = std::max(fraction, bound->fraction.size() + 1);
  }
  if (whole > kBoundDigitsMax || fraction > kBoundDigitsMax) {
    return absl::InvalidArgumentError(
        StrCat("a bound of a number has more than ", kBoundDigitsMax, " digits"));
  }
  ExprId all = Whole(pool, static_cast<int>(whole), !bounds.integer);
  if (!bounds.integer) {
    const ExprId behind =
        pool.Sequence({pool.Literal("."), Digits(pool).Times(1, static_cast<int>(fraction))});
    all = pool.Sequence({all, pool.Optional(behind)});
  }
  STAFFEL_ASSIGN_OR_RETURN(CharDfa dfa, ToDfa(pool, all));
  const auto narrow = [&](const CharDfa& to) -> Status {
    STAFFEL_ASSIGN_OR_RETURN(dfa, CharDfa::Intersect(dfa, to, pool.limits().dfa_states));
    return absl::OkStatus();
  };
  if (bounds.min) {
    STAFFEL_ASSIGN_OR_RETURN(const CharDfa least,
                             ToDfa(pool, AtLeast(pool, *bounds.min, bounds.min_exclusive)));
    STAFFEL_RETURN_IF_ERROR(narrow(least));
  }
  if (bounds.max) {
    STAFFEL_ASSIGN_OR_RETURN(const CharDfa most,
                             ToDfa(pool, AtMost(pool, *bounds.max, bounds.max_exclusive)));
    STAFFEL_RETURN_IF_ERROR(narrow(most));
  }
  for (const Decimal& multiple : bounds.multiples_of) {
    STAFFEL_ASSIGN_OR_RETURN(const Divisor divisor, ToDivisor(multiple));
    STAFFEL_RETURN_IF_ERROR(narrow(Multiples(divisor)));
  }
  return pool.Dfa(std::make_shared<const CharDfa>(std::move(dfa)), Encoding::kRaw);
}

}  // namespace staffel::grammar
