//! Faults of simulated loads (`--faults`): failing, slow and unreadable members.
//!
//! ```text
//! fail=MEMBER@TIME          from then on every request to the member fails
//! slow=MEMBERxFACTOR@TIME   from then on every request takes so many times as long
//! media=MEMBER/N[@TIME]     from then on one in N of its reads finds a block that cannot be read until it is written
//! ```
//!
//! Commas separate several faults. [`drawn`] plans faults that the level tolerates, from a seed.

use thiserror::Error;
use weft_ondisk::{Level, Redundancy};
use weft_sim::machine::{FaultKind, PlannedFault};
use weft_units::rng::Rng;
use weft_units::{MemberIndex, Span, Time};

/// Reasons why a plan of faults is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// The text is not a fault.
    #[error(
        "faults: found {found:?}, expected fail=1@5s, slow=2x10@1s or media=0/1000, separated by commas"
    )]
    Fault {
        /// Part of the text that is not a fault.
        found: String,
    },
    /// A fault names a member that does not exist.
    #[error("faults: found member {found} in {fault:?}, expected 0 to {last}")]
    Member {
        /// Member that was named.
        found: u16,
        /// Fault that names the member.
        fault: String,
        /// Number of the last member.
        last: usize,
    },
}

/// Parses a plan of faults for `members` members.
///
/// ```
/// use weft_lab::simulate::faults::parse;
/// assert_eq!(parse("fail=1@5s,slow=2x10@200ms,media=0/1000", 4).unwrap().len(), 3);
/// assert!(parse("fail=4@5s", 4).unwrap_err().to_string().contains("expected 0 to 3"));
/// assert!(parse("fail=1", 4).is_err());
/// ```
///
/// # Errors
/// A fault is invalid, or its member does not exist.
pub fn parse(text: &str, members: usize) -> Result<Vec<PlannedFault>, FaultsError> {
    let one = |part: &str| {
        let wrong = || FaultsError::Fault { found: part.to_owned() };
        let fault = fault(part.trim()).ok_or_else(wrong)?;
        let found = fault.member.0;
        if usize::from(found) >= members {
            let last = members.saturating_sub(1);
            return Err(FaultsError::Member { found, fault: part.to_owned(), last });
        }
        Ok(fault)
    };
    text.split(',').map(one).collect()
}

fn fault(text: &str) -> Option<PlannedFault> {
    let (word, rest) = text.split_once('=')?;
    let (what, from) = match rest.split_once('@') {
        Some((what, from)) => (what, Some(Time(0) + time(from)?)),
        None => (rest, None),
    };
    let (member, from, kind) = match word {
        "fail" => (what, from?, FaultKind::Gone),
        "slow" => {
            let (member, factor) = what.split_once('x')?;
            let factor = factor.parse().ok().filter(|factor| *factor > 0)?;
            (member, from?, FaultKind::Slow { factor })
        }
        "media" => {
            let (member, one_in) = what.split_once('/')?;
            let one_in = one_in.parse().ok().filter(|one_in| *one_in > 0)?;
            (member, from.unwrap_or(Time(0)), FaultKind::Media { one_in })
        }
        _ => return None,
    };
    Some(PlannedFault { member: MemberIndex(member.parse().ok()?), from, kind })
}

/// Parses a time, such as `5s`, `1.5s`, `200ms` or `2m`; `None` for any other text.
fn time(text: &str) -> Option<Span> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    let nanoseconds = number.parse::<f64>().ok()? * unit;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is looked at")]
    (nanoseconds < 1e18).then_some(Span(nanoseconds as u64))
}

/// Faults that the level tolerates, within `span`. One member becomes slow in the first third; a
/// member has unreadable blocks from the same time on, or another member fails later. With RAID 6
/// both happen. Without redundancy, one member becomes slow and nothing else happens.
#[must_use]
pub fn drawn(level: Option<Level>, members: usize, span: Span, seed: u64) -> Vec<PlannedFault> {
    let mut rng = Rng::new(seed ^ 0x6661_756c_7473);
    let count = u16::try_from(members).unwrap_or(u16::MAX).max(1);
    let mut order: Vec<u16> = (0..count).collect();
    for at in (1..order.len()).rev() {
        let other = usize::try_from(rng.below(at as u64 + 1)).expect("a place in the list");
        order.swap(at, other);
    }
    let mut at = |from: u64, to: u64| Time(span.0 / 100 * (from + rng.below(to - from)));
    let (early, late) = (at(5, 30), at(40, 80));
    let (factor, fails_or_not) = (2 + rng.below(9), rng.below(2));
    let factor = u32::try_from(factor).expect("small");
    let planned = |nth: usize, from, kind| {
        let member = MemberIndex(order[nth % order.len()]);
        PlannedFault { member, from, kind }
    };
    let slow = planned(0, early, FaultKind::Slow { factor });
    let fails = planned(1, late, FaultKind::Gone);
    let media = planned(2, early, FaultKind::Media { one_in: 200 });
    let Some(level) = level else { return vec![slow] };
    match (level.row().redundancy, fails_or_not) {
        (Redundancy::None, _) => vec![slow],
        (Redundancy::Parity(2..), _) => vec![slow, fails, media],
        (Redundancy::Copies | Redundancy::Mirror | Redundancy::Parity(_), 0) => vec![slow, fails],
        (Redundancy::Copies | Redundancy::Mirror | Redundancy::Parity(_), _) => vec![slow, media],
    }
}

/// Description of a fault in words.
#[must_use]
pub fn told(fault: &PlannedFault) -> String {
    let PlannedFault { member: MemberIndex(member), from, kind } = fault;
    let from = from.0 as f64 / 1e9;
    match kind {
        FaultKind::Gone => format!("member {member} fails at {from:.3} s"),
        FaultKind::Slow { factor } => {
            format!("member {member} takes {factor} times as long from {from:.3} s on")
        }
        FaultKind::Media { one_in } => {
            format!(
                "one in {one_in} reads of member {member} finds a bad block from {from:.3} s on"
            )
        }
    }
}
