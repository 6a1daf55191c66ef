//! What is to be done about the certificates. Pure.

use jiff::{SignedDuration, Timestamp};

/// Certificates are valid from a little before they are made: clocks of nodes differ.
pub(super) const BACKDATED: SignedDuration = SignedDuration::from_mins(5);
/// How long clients get to hear of a new authority before something is signed with it; less if it does not live long.
const SETTLING: SignedDuration = SignedDuration::from_hours(1);

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first moment.
    pub from: Timestamp,
    /// Its last.
    pub until: Timestamp,
}

impl Span {
    fn length(self) -> SignedDuration {
        self.until.duration_since(self.from)
    }

    fn holds(self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

/// How long certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The authority.
    pub authority: Lifetime,
    /// The serving certificate.
    pub server: Lifetime,
}

/// How long a certificate lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// From when it is made.
    pub duration: SignedDuration,
    /// How long before its end it is replaced; a third of its life if nothing is said.
    pub renew_before: Option<SignedDuration>,
}

impl Lifetime {
    const LEAST: SignedDuration = SignedDuration::from_mins(10);

    /// So long, within reason: one that is always about to expire would be made anew all the time.
    pub fn new(duration: SignedDuration, renew_before: Option<SignedDuration>) -> Self {
        let duration = duration.clamp(Self::LEAST, SignedDuration::from_hours(24 * 365 * 10));
        let renew_before =
            renew_before.filter(|before| *before > SignedDuration::ZERO && *before <= duration / 2);
        Self { duration, renew_before }
    }

    /// When one with this span is replaced.
    fn due(self, span: Span) -> Timestamp {
        let before = self.renew_before.unwrap_or(span.length() / 3).min(span.length() / 2);
        span.until - before
    }

    /// It lives longer than is wanted now: what is wanted has changed.
    fn is_exceeded_by(self, span: Span) -> bool {
        span.length() > self.duration + BACKDATED + SignedDuration::from_mins(1)
    }
}

impl Default for Lifetimes {
    /// KubeVirt's: a week, and a day.
    fn default() -> Self {
        Self {
            authority: Lifetime::new(SignedDuration::from_hours(7 * 24), None),
            server: Lifetime::new(SignedDuration::from_hours(24), None),
        }
    }
}

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The authority that signs from now on.
    pub authority: Span,
    /// The serving certificate.
    pub server: Span,
    /// That authority signed it, not an earlier one.
    pub signed_by_it: bool,
    /// One of the bundle signed it, and it is for the names that are served.
    pub fits: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make an authority and a serving certificate: there are none that can be used.
    MakeAll,
    /// Make an authority, keep the earlier one in the bundle, and the serving certificate.
    RotateAuthority,
    /// Make a serving certificate.
    RenewServer,
    /// Nothing until then.
    Keep(Timestamp),
}

/// What is to be done. `None` is what cannot be read.
pub fn judge(facts: Option<&Facts>, now: Timestamp, lifetimes: &Lifetimes) -> Verdict {
    let Some(facts) = facts else { return Verdict::MakeAll };
    if !facts.authority.holds(now) {
        return Verdict::MakeAll;
    }
    if !facts.fits || !facts.server.holds(now) {
        return Verdict::RenewServer;
    }
    let authority_due = lifetimes.authority.due(facts.authority);
    if now >= authority_due || lifetimes.authority.is_exceeded_by(facts.authority) {
        return Verdict::RotateAuthority;
    }
    let settled = settled(facts.authority);
    let server_due = if !facts.signed_by_it || lifetimes.server.is_exceeded_by(facts.server) {
        settled
    } else {
        lifetimes.server.due(facts.server)
    };
    // If its end comes before clients are sure to know the authority, there is nothing to wait for.
    let server_due = server_due.max(settled).min(latest(facts.server));
    if now >= server_due {
        return Verdict::RenewServer;
    }
    Verdict::Keep(server_due.min(authority_due))
}

/// When clients are sure to know an authority.
fn settled(authority: Span) -> Timestamp {
    authority.from + BACKDATED + SETTLING.min(authority.length() / 10)
}

/// When a serving certificate is replaced at the latest.
fn latest(server: Span) -> Timestamp {
    server.until - server.length() / 20
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    /// Made at a moment, to live so long.
    fn made(at_second: i64, length: i64) -> Span {
        Span { from: at(at_second) - BACKDATED, until: at(at_second + length) }
    }

    fn facts(authority: Span, server: Span) -> Facts {
        Facts { authority, server, signed_by_it: true, fits: true }
    }

    #[test]
    fn what_is_done_when() {
        let young = facts(made(0, 7 * DAY), made(0, DAY));
        let earlier = |facts: Facts| Facts { signed_by_it: false, ..facts };
        let rotated = earlier(facts(made(0, 7 * DAY), made(-2 * HOUR, DAY)));
        let nearly_over = earlier(facts(made(0, 7 * DAY), made(-DAY + HOUR / 2, DAY)));
        let old = facts(made(-5 * DAY, 7 * DAY), made(0, DAY));
        let cases = [
            ("there is nothing", None, 0, Verdict::MakeAll),
            ("all is new", Some(young), 60, Verdict::Keep(server_due(young))),
            ("a third is left", Some(young), 17 * HOUR, Verdict::RenewServer),
            ("the server expired", Some(young), 2 * DAY, Verdict::RenewServer),
            (
                "the server is for other names",
                Some(Facts { fits: false, ..young }),
                60,
                Verdict::RenewServer,
            ),
            ("the authority is due", Some(old), 0, Verdict::RotateAuthority),
            ("the authority expired", Some(young), 8 * DAY, Verdict::MakeAll),
            ("all of it is of tomorrow", Some(young), -HOUR, Verdict::MakeAll),
            ("the authority is new, the server is not", Some(rotated), 60, Verdict::Keep(at(HOUR))),
            ("the new authority is known", Some(rotated), HOUR, Verdict::RenewServer),
            ("the server cannot wait for that", Some(nearly_over), 60, Verdict::RenewServer),
        ];
        for (case, facts, now, verdict) in cases {
            assert_eq!(judge(facts.as_ref(), at(now), &Lifetimes::default()), verdict, "{case}");
        }
    }

    fn server_due(facts: Facts) -> Timestamp {
        facts.server.until - facts.server.length() / 3
    }

    #[test]
    fn shorter_lives_take_effect_at_once_and_longer_ones_in_time() {
        let young = facts(made(0, 7 * DAY), made(0, DAY));
        let lifetimes = |authority, server| Lifetimes {
            authority: Lifetime::new(SignedDuration::from_secs(authority), None),
            server: Lifetime::new(SignedDuration::from_secs(server), None),
        };
        let now = at(2 * HOUR);
        assert_eq!(judge(Some(&young), now, &lifetimes(DAY, HOUR)), Verdict::RotateAuthority);
        assert_eq!(judge(Some(&young), now, &lifetimes(7 * DAY, HOUR)), Verdict::RenewServer);
        assert!(matches!(judge(Some(&young), now, &lifetimes(70 * DAY, DAY)), Verdict::Keep(_)));
    }

    #[test]
    fn renew_before_is_followed_unless_it_is_nonsense() {
        let young = facts(made(0, 7 * DAY), made(0, DAY));
        let with = |before: i64| Lifetimes {
            server: Lifetime::new(
                SignedDuration::from_secs(DAY),
                Some(SignedDuration::from_secs(before)),
            ),
            ..Lifetimes::default()
        };
        assert_eq!(judge(Some(&young), at(60), &with(HOUR)), Verdict::Keep(at(22 * HOUR + 2865)));
        assert_eq!(judge(Some(&young), at(60), &with(3 * HOUR)), Verdict::Keep(at(21 * HOUR)));
        for nonsense in [-1, 0, DAY, 100 * DAY] {
            assert_eq!(
                judge(Some(&young), at(60), &with(nonsense)),
                Verdict::Keep(server_due(young))
            );
        }
    }

    #[test]
    fn the_least_lives_still_leave_time_between_renewals() {
        let shortest = Lifetimes {
            authority: Lifetime::new(SignedDuration::ZERO, None),
            server: Lifetime::new(SignedDuration::ZERO, None),
        };
        let young = facts(made(0, 600), made(0, 600));
        let Verdict::Keep(until) = judge(Some(&young), at(1), &shortest) else {
            panic!("made anew at once")
        };
        assert!(until > at(60), "{until}");
    }
}
