//! W3C trace context: accepted from clients and passed on to upstreams.
//!
//! Strict where the Recommendation is: a malformed context is ignored, and a new trace begins. This module does
//! no I/O and records nothing; headers and randomness come in as arguments.
//!
//! Source: <https://www.w3.org/TR/trace-context/> (Recommendation of 23 November 2021), §3.2 and §3.3.

use std::fmt;

/// Names of the two headers.
pub const TRACEPARENT: &str = "traceparent";
/// See [`TRACEPARENT`].
pub const TRACESTATE: &str = "tracestate";

/// Most list members of `tracestate` (§3.3.1.1).
const MEMBERS_MAX: usize = 32;
/// Longest `tracestate` passed on: the required minimum (§3.3.1.5).
const STATE_MAX_BYTES: usize = 512;
/// Members above this size are dropped first (§3.3.1.5).
const LARGE_MEMBER_BYTES: usize = 128;

/// Id of a trace; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub(crate) u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Contents of `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace.
    pub trace_id: TraceId,
    /// Id of the caller's span; never zero.
    pub parent_id: u64,
    /// The caller may have recorded the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Parses a header; `None` if it is malformed (§3.2.2; §4.3 for future versions).
    pub fn parse(header: &str) -> Option<Self> {
        let bytes = header.as_bytes();
        let version = parse_hex(bytes.get(..2)?)?;
        let is_long_enough = match version {
            0 => bytes.len() == 55,
            0xff => false,
            _ => bytes.len() == 55 || bytes.get(55) == Some(&b'-'),
        };
        let has_dashes = [2, 35, 52].into_iter().all(|at| bytes.get(at) == Some(&b'-'));
        if !is_long_enough || !has_dashes {
            return None;
        }
        let (trace_id, parent_id) = (parse_hex(bytes.get(3..35)?)?, parse_hex(bytes.get(36..52)?)?);
        let flags = parse_hex(bytes.get(53..55)?)?;
        let parent_id = u64::try_from(parent_id).ok()?;
        let is_valid = trace_id != 0 && parent_id != 0;
        is_valid.then_some(Self { trace_id: TraceId(trace_id), parent_id, sampled: flags & 1 == 1 })
    }
}

/// Parses lowercase hexadecimal digits.
fn parse_hex(digits: &[u8]) -> Option<u128> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    digits.iter().try_fold(0, |number, byte| Some(number << 4 | u128::from(digit(byte)?)))
}

/// Trace context of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace.
    pub trace_id: TraceId,
    /// Id of the caller's span, if there is one.
    pub parent_id: Option<u64>,
    /// The caller may have recorded the trace.
    pub sampled: bool,
    /// `tracestate` to pass on.
    pub state: Option<String>,
    /// Id of the span that upstream calls belong to; each call has one of its own if there is none.
    pub span_id: Option<u64>,
}

impl TraceContext {
    /// Reads the context from request headers, or starts a new trace. Several `traceparent` headers are
    /// invalid (§4.3). Several `tracestate` headers form one list (RFC 9110 §5.3) and count only with a
    /// `traceparent` (§3.3).
    pub fn from_headers<'h>(
        mut parents: impl Iterator<Item = &'h str>,
        states: impl Iterator<Item = &'h str>,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let parent = parents.next().filter(|_| parents.next().is_none()).and_then(TraceParent::parse);
        match parent {
            Some(TraceParent { trace_id, parent_id, sampled }) => {
                let state = parse_tracestate(states);
                Self { trace_id, parent_id: Some(parent_id), sampled, state, span_id: None }
            }
            None => Self {
                trace_id: TraceId(rng.u128(1..)),
                parent_id: None,
                sampled: false,
                state: None,
                span_id: None,
            },
        }
    }

    /// `traceparent` for an upstream call, with the id of its span, or a new one.
    pub fn child_traceparent(&self, rng: &mut fastrand::Rng) -> String {
        let span_id = self.span_id.unwrap_or_else(|| rng.u64(1..));
        format!("00-{}-{span_id:016x}-{:02x}", self.trace_id, u8::from(self.sampled))
    }
}

/// The `tracestate` to pass on, or `None` if any part is malformed (§3.3.1). If it is too long, large members are
/// dropped first, then the last ones.
fn parse_tracestate<'h>(headers: impl Iterator<Item = &'h str>) -> Option<String> {
    // OWS of RFC 9110 §5.6.3; empty members are allowed.
    let is_whitespace = |character| matches!(character, ' ' | '\t');
    let members =
        headers.flat_map(|header| header.split(',')).map(|member| member.trim_matches(is_whitespace));
    let members: Vec<_> = members.filter(|member| !member.is_empty()).take(MEMBERS_MAX + 1).collect();
    if members.is_empty() || members.len() > MEMBERS_MAX || !members.iter().all(|member| is_member(member)) {
        return None;
    }
    let length = |members: &[&str]| members.iter().map(|member| member.len() + 1).sum::<usize>() - 1;
    let mut remaining = members;
    if length(&remaining) > STATE_MAX_BYTES {
        remaining.retain(|member| member.len() <= LARGE_MEMBER_BYTES);
    }
    while !remaining.is_empty() && length(&remaining) > STATE_MAX_BYTES {
        remaining.pop();
    }
    (!remaining.is_empty()).then(|| remaining.join(","))
}

/// `key=value` (§3.3.1.3).
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    is_member_key(key) && is_member_value(value)
}

fn is_member_key(key: &str) -> bool {
    let is_lower_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str, digit_first: bool, max: usize| {
        let first = part.bytes().next();
        let has_valid_start = first.is_some_and(|first| {
            first.is_ascii_lowercase() || (digit_first && is_lower_alphanumeric(&first))
        });
        has_valid_start
            && part.len() <= max
            && part.bytes().all(|byte| is_lower_alphanumeric(&byte) || b"_-*/".contains(&byte))
    };
    match key.split_once('@') {
        Some((tenant, system)) => is_part(tenant, true, 241) && is_part(system, false, 14),
        None => is_part(key, false, 256),
    }
}

fn is_member_value(value: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=';
    !value.is_empty() && value.len() <= 256 && value.bytes().all(allowed) && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT_VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_parsed() {
        let parent = TraceParent::parse(TRACEPARENT_VALUE).unwrap();
        assert_eq!(parent.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((parent.parent_id, parent.sampled), (0x00f0_67aa_0ba9_02b7, true));
        let unsampled = TraceParent::parse(&TRACEPARENT_VALUE.replace("-01", "-fe")).unwrap();
        assert!(!unsampled.sampled);
    }

    #[test]
    fn future_versions_are_parsed_up_to_known_fields() {
        for (header, good) in [
            (TRACEPARENT_VALUE.replacen("00", "cc", 1), true),
            (TRACEPARENT_VALUE.replacen("00", "cc", 1) + "-what-comes", true),
            (TRACEPARENT_VALUE.replacen("00", "cc", 1) + "-", true),
            (TRACEPARENT_VALUE.replacen("00", "cc", 1) + ".x", false),
            (TRACEPARENT_VALUE.replacen("00", "ff", 1), false),
            (TRACEPARENT_VALUE.to_owned() + "-", false),
        ] {
            assert_eq!(TraceParent::parse(&header).is_some(), good, "{header}");
        }
    }

    #[test]
    fn malformed_traceparent_is_rejected() {
        for header in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(header), None, "{header}");
        }
        // No truncation is valid or panics.
        assert!(
            (0..TRACEPARENT_VALUE.len()).all(|end| TraceParent::parse(&TRACEPARENT_VALUE[..end]).is_none())
        );
    }

    fn accepted(parents: &[&str], states: &[&str]) -> TraceContext {
        let mut rng = fastrand::Rng::with_seed(1);
        TraceContext::from_headers(parents.iter().copied(), states.iter().copied(), &mut rng)
    }

    #[test]
    fn each_upstream_call_gets_its_own_span() {
        let context = accepted(&[TRACEPARENT_VALUE], &["congo=t61rcWkgMzE, rojo=1", "a@b=c"]);
        assert_eq!(context.state.as_deref(), Some("congo=t61rcWkgMzE,rojo=1,a@b=c"));
        let mut rng = fastrand::Rng::with_seed(2);
        let (first, second) = (context.child_traceparent(&mut rng), context.child_traceparent(&mut rng));
        assert_ne!(first, second);
        for call in [first, second].map(|call| TraceParent::parse(&call).unwrap()) {
            assert_eq!((call.trace_id, call.sampled), (context.trace_id, true));
            assert_ne!(Some(call.parent_id), context.parent_id);
        }
    }

    #[test]
    fn missing_or_repeated_traceparent_starts_a_new_trace() {
        for parents in [&[][..], &["nonsense"], &[TRACEPARENT_VALUE, TRACEPARENT_VALUE]] {
            let context = accepted(parents, &["a=b"]);
            assert_ne!(context.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!((context.parent_id, context.sampled, context.state), (None, false, None));
        }
    }

    #[test]
    fn malformed_tracestate_is_dropped() {
        let many: String = (0..33).map(|at| format!("k{at}=v,")).collect();
        for states in ["a", "A=b", "a=b,c", "a=b=c", "a=", "é=b", "1a=b", "a=é", many.as_str()] {
            assert_eq!(accepted(&[TRACEPARENT_VALUE], &[states]).state, None, "{states}");
        }
        assert_eq!(accepted(&[TRACEPARENT_VALUE], &[",a=b,, ,"]).state.as_deref(), Some("a=b"));
    }

    #[test]
    fn long_tracestate_loses_large_members_then_the_last() {
        let large = format!("large={}", "x".repeat(200));
        let small = (0..30).map(|at| format!("k{at:02}={}", "v".repeat(20))).collect::<Vec<_>>().join(",");
        let kept = accepted(&[TRACEPARENT_VALUE], &[&large, &small]).state.unwrap();
        assert!(kept.len() <= 512 && kept.len() > 480 && kept.starts_with("k00=") && !kept.contains("large"));
        assert!(!kept.contains("k29"));
    }
}
