//! What the runtime of a container demands of its memory: the heap of a Java virtual machine, and Go's
//! `GOMEMLIMIT`.

use super::{
    limits::RequestAndLimit,
    need::amount_text,
    survey::{Resource, RuntimeHint},
};
use crate::types::units::Bytes;

/// Memory of a thread's stack, if `-Xss` is not set.
const THREAD_STACK: i64 = 1 << 20;

/// What a Java virtual machine uses besides its heap, at its peak, and what is known of its heap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JvmMemory {
    /// Committed non-heap memory.
    pub non_heap: Bytes,
    pub threads: u32,
    /// The stack of a thread; `None` for the default.
    pub thread_stack: Option<Bytes>,
    /// Direct buffers; `None` if unknown.
    pub direct_buffers: Option<Bytes>,
    /// The data that stays in the heap; `None` if unknown.
    pub live_data: Option<Bytes>,
    /// The largest share of an hour that was garbage collection; `None` if unknown.
    pub collection_share: Option<f64>,
}

impl JvmMemory {
    /// The memory of a container with a heap of this size, and 10 %.
    pub fn memory_with_heap(&self, heap: i64) -> i64 {
        let stack = self.thread_stack.map_or(THREAD_STACK, |stack| stack.0);
        let threads = i64::from(self.threads).saturating_mul(stack);
        let direct_buffers = self.direct_buffers.map_or(0, |bytes| bytes.0);
        let parts = [heap, self.non_heap.0, threads, direct_buffers];
        percent_of(parts.into_iter().fold(0, i64::saturating_add), 110)
    }
}

/// The least memory that a runtime works with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFloor {
    /// The amount.
    pub bytes: i64,
    pub reason: String,
}

/// The least memory that may be advised; `None` if the runtime demands none.
pub fn memory_floor(hint: &RuntimeHint, jvm: Option<&JvmMemory>) -> Option<MemoryFloor> {
    let RuntimeHint::Jvm { known_by, max_heap: Some(heap), .. } = hint else { return None };
    let (bytes, besides) = match jvm {
        Some(jvm) if jvm.direct_buffers.is_none() => (
            jvm.memory_with_heap(heap.0),
            "the heap, what it uses besides it without direct buffers, which are unknown, and 10 %",
        ),
        Some(jvm) => (jvm.memory_with_heap(heap.0), "the heap, what it uses besides it, and 10 %"),
        None => (percent_of(heap.0, 125), "the heap and a rough 25 %, because it has no series"),
    };
    let text = amount_text(Resource::Memory, bytes);
    let reason = format!("memory is at least {text} with {known_by}: {besides}");
    Some(MemoryFloor { bytes, reason })
}

/// The request of a container whose heap follows its limit: the data that stays in the heap, what is used besides it, and
/// 15 %. The heap grows to its share of the limit whatever the request is, so usage says little about what is needed. `None`
/// if something is unknown.
pub fn request_with_relative_heap(hint: &RuntimeHint, jvm: &JvmMemory) -> Option<i64> {
    let RuntimeHint::Jvm { max_heap: None, max_heap_percent: Some(_), .. } = hint else {
        return None;
    };
    Some(percent_of(jvm.live_data?.0.saturating_add(jvm.non_heap.0), 115))
}

/// The limit that the runtime allows, and a remark if that differs from the wanted one. `keeps_qos` is
/// whether request and limit are equal and have to stay so.
pub fn bounded(
    hint: &RuntimeHint,
    current: RequestAndLimit,
    wanted: RequestAndLimit,
    keeps_qos: bool,
) -> (RequestAndLimit, Option<String>) {
    match hint {
        RuntimeHint::Jvm { known_by, max_heap_percent: Some(_), .. } => {
            let Some(limit) = current.limit else { return (wanted, None) };
            let request = wanted.request.map(|request| request.min(limit));
            let bounded = RequestAndLimit { request, limit: Some(limit) };
            if bounded == wanted {
                return (wanted, None);
            }
            let text = amount_text(Resource::Memory, limit);
            let remark = format!(
                "the heap follows the limit with {known_by}, so the limit stays at {text}: a lower limit needs a smaller heap \
                 first, and a higher one only grows the heap"
            );
            (bounded, Some(remark))
        }
        RuntimeHint::Go { known_by, memory_limit: Some(of_runtime), follows_limit: false } => {
            let Some(limit) = wanted.limit.filter(|_| wanted.limit != current.limit) else {
                return (wanted, None);
            };
            let least = least_limit(of_runtime.0);
            if limit >= least {
                return (wanted, None);
            }
            // A limit that is too low already is not lowered further.
            let least = current
                .limit
                .filter(|current| *current > limit)
                .map_or(least, |current| least.min(current));
            let lowered = amount_text(Resource::Memory, limit / 10 * 9);
            let remark = format!(
                "the limit is not set below {} with {known_by}, which should be at most 90 % of it; for a limit of {} set GOMEMLIMIT to \
                 {lowered} first",
                amount_text(Resource::Memory, least),
                amount_text(Resource::Memory, limit),
            );
            let request = if keeps_qos { Some(least) } else { wanted.request };
            (RequestAndLimit { request, limit: Some(least) }, Some(remark))
        }
        RuntimeHint::Go { known_by, follows_limit: true, .. } if wanted.limit != current.limit => {
            let remark = format!(
                "{known_by} follows the limit when the container restarts, and not when it is resized in place"
            );
            (wanted, Some(remark))
        }
        _ => (wanted, None),
    }
}

/// The least limit for a `GOMEMLIMIT`, which is at most 90 % of it.
fn least_limit(of_runtime: i64) -> i64 {
    // Rounded up to whole mebibytes, as a limit is written. Multiplied first, so that 90 % of 1000Mi is 900Mi
    // exactly.
    let tenths = i128::from(of_runtime) * 10;
    let least = (tenths + 8) / 9;
    i64::try_from(least).map_or(i64::MAX, whole_mebibytes)
}

fn percent_of(amount: i64, percent: i128) -> i64 {
    let hundredths = i128::from(amount) * percent;
    i64::try_from((hundredths + 99) / 100).map_or(i64::MAX, whole_mebibytes)
}

fn whole_mebibytes(amount: i64) -> i64 {
    crate::types::units::round_up_to_multiple(amount, 1 << 20).unwrap_or(amount)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rightsizing::testing::MI;

    fn jvm(max_heap: Option<i64>, percent: Option<u8>) -> RuntimeHint {
        let known_by = match percent {
            Some(percent) => format!("-XX:MaxRAMPercentage={percent}"),
            None => "-Xmx2g".to_owned(),
        };
        RuntimeHint::Jvm { known_by, max_heap: max_heap.map(Bytes), max_heap_percent: percent }
    }

    fn go(memory_limit: Option<i64>, follows_limit: bool) -> RuntimeHint {
        let known_by = "GOMEMLIMIT=900MiB".to_owned();
        RuntimeHint::Go { known_by, memory_limit: memory_limit.map(Bytes), follows_limit }
    }

    fn both(request: i64, limit: Option<i64>) -> RequestAndLimit {
        RequestAndLimit { request: Some(request * MI), limit: limit.map(|limit| limit * MI) }
    }

    #[test]
    fn a_fixed_heap_needs_room_around_it() {
        // 2048 x 1.25.
        let rough = memory_floor(&jvm(Some(2048 * MI), None), None).expect("a floor");
        assert_eq!(rough.bytes, 2560 * MI);
        let expected = "memory is at least 2.50Gi with -Xmx2g: the heap and a rough 25 %, because it has no series";
        assert_eq!(rough.reason, expected);
        // (2048 + 200 + 100 x 1 + 52) x 1.1 = 2640.
        let measured = JvmMemory {
            non_heap: Bytes(200 * MI),
            threads: 100,
            direct_buffers: Some(Bytes(52 * MI)),
            ..JvmMemory::default()
        };
        let floor = memory_floor(&jvm(Some(2048 * MI), None), Some(&measured)).expect("a floor");
        assert_eq!(floor.bytes, 2640 * MI);
        // (2048 + 200 + 100 x 2 + 52) x 1.1 = 2750.
        assert!(floor.reason.ends_with(": the heap, what it uses besides it, and 10 %"));
        let unknown = JvmMemory { direct_buffers: None, ..measured };
        let floor = memory_floor(&jvm(Some(2048 * MI), None), Some(&unknown)).expect("a floor");
        assert!(floor.reason.contains("which are unknown"), "{}", floor.reason);
        let large_stacks = JvmMemory { thread_stack: Some(Bytes(2 * MI)), ..measured };
        let floor =
            memory_floor(&jvm(Some(2048 * MI), None), Some(&large_stacks)).expect("a floor");
        assert_eq!(floor.bytes, 2750 * MI);
        assert_eq!(memory_floor(&jvm(None, Some(75)), Some(&measured)), None);
        assert_eq!(memory_floor(&go(Some(900 * MI), false), None), None);
    }

    #[test]
    fn a_request_follows_the_data_if_the_heap_follows_the_limit() {
        let measured = JvmMemory { non_heap: Bytes(200 * MI), ..JvmMemory::default() };
        let with_data = JvmMemory { live_data: Some(Bytes(300 * MI)), ..measured };
        for (name, hint, measured, expected) in [
            ("a share of the limit", jvm(None, Some(75)), &with_data, Some(575 * MI)),
            ("unknown data", jvm(None, Some(75)), &measured, None),
            ("a fixed heap", jvm(Some(2048 * MI), None), &with_data, None),
            ("fixed before relative", jvm(Some(2048 * MI), Some(75)), &with_data, None),
            ("Go", go(Some(900 * MI), false), &with_data, None),
        ] {
            assert_eq!(request_with_relative_heap(&hint, measured), expected, "{name}");
        }
    }

    #[test]
    fn the_limit_stays_while_the_heap_follows_it() {
        let hint = jvm(None, Some(75));
        let current = both(2048, Some(2048));
        let (bounds, remark) = bounded(&hint, current, both(800, Some(800)), true);
        assert_eq!(bounds, both(800, Some(2048)));
        let remark = remark.expect("a remark");
        assert!(remark.starts_with(
            "the heap follows the limit with -XX:MaxRAMPercentage=75, so the limit stays at 2Gi:"
        ));
        assert_eq!(bounded(&hint, current, both(3000, Some(3000)), true).0, both(2048, Some(2048)));
        assert_eq!(
            bounded(&hint, current, both(800, None), false).0,
            both(800, Some(2048)),
            "unset"
        );
        assert_eq!(
            bounded(&hint, current, both(900, Some(2048)), false),
            (both(900, Some(2048)), None)
        );
        let unlimited = both(2048, None);
        assert_eq!(bounded(&hint, unlimited, both(800, None), false), (both(800, None), None));
    }

    #[test]
    fn the_limit_stays_above_a_fixed_gomemlimit() {
        let hint = go(Some(900 * MI), false);
        let current = both(1000, Some(2000));
        for (wanted, keeps_qos, expected, is_bounded) in [
            (both(400, Some(800)), false, both(400, Some(1000)), true),
            (both(800, Some(800)), true, both(1000, Some(1000)), true),
            (both(400, Some(1000)), false, both(400, Some(1000)), false),
            (both(400, None), false, both(400, None), false),
            (both(400, Some(2000)), false, both(400, Some(2000)), false),
        ] {
            let (bounds, remark) = bounded(&hint, current, wanted, keeps_qos);
            assert_eq!(bounds, expected);
            assert_eq!(remark.is_some(), is_bounded);
        }
        // A limit that is too low already is neither lowered nor raised, unless it is raised anyway.
        let low = both(700, Some(700));
        for (wanted, expected) in [(500, 700), (700, 700), (800, 1000)] {
            let (bounds, _) = bounded(&hint, low, both(300, Some(wanted)), false);
            assert_eq!(bounds, both(300, Some(expected)), "{wanted}");
        }
        let (_, remark) = bounded(&hint, current, both(400, Some(800)), false);
        let expected = "the limit is not set below 1000Mi with GOMEMLIMIT=900MiB, which should be at most 90 % of it; for a limit of \
                        800Mi set GOMEMLIMIT to 720Mi first";
        assert_eq!(remark.as_deref(), Some(expected));
    }

    #[test]
    fn a_gomemlimit_that_follows_the_limit_is_remarked_on() {
        let hint = go(None, true);
        let (bounds, remark) = bounded(&hint, both(1, Some(2)), both(1, Some(3)), false);
        assert_eq!(bounds, both(1, Some(3)));
        assert!(remark.expect("a remark").contains("when the container restarts"));
        assert_eq!(bounded(&hint, both(1, Some(2)), both(1, Some(2)), false).1, None);
    }

    proptest! {
        #[test]
        fn a_limit_leaves_a_tenth_above_gomemlimit(of_runtime in 1..(1_i64 << 45), wanted in 1..(1_i64 << 45)) {
            let hint = go(Some(of_runtime), false);
            let current = RequestAndLimit { request: Some(1), limit: None };
            let wanted = RequestAndLimit { request: Some(1), limit: Some(wanted) };
            let (bounds, _) = bounded(&hint, current, wanted, false);
            let limit = bounds.limit.expect("a limit");
            prop_assert!(i128::from(of_runtime) * 10 <= i128::from(limit) * 9);
            prop_assert!(wanted.limit <= bounds.limit);
        }

        #[test]
        fn a_floor_is_above_the_heap(heap in 1..(1_i64 << 50), non_heap in 0..(1_i64 << 40), threads in 0..10_000_u32) {
            let jvm_memory = JvmMemory { non_heap: Bytes(non_heap), threads, ..JvmMemory::default() };
            let hint = jvm(Some(heap), None);
            for measured in [None, Some(&jvm_memory)] {
                let floor = memory_floor(&hint, measured).expect("a floor");
                prop_assert!(floor.bytes >= heap);
            }
        }

        #[test]
        fn nothing_is_bounded_twice(limit in 1..4096_i64, wanted in 1..4096_i64, heap in 1..100_u8, is_go: bool) {
            let hint = if is_go { go(Some(900 * MI), false) } else { jvm(None, Some(heap)) };
            let current = both(limit, Some(limit));
            let (once, _) = bounded(&hint, current, both(wanted, Some(wanted)), true);
            prop_assert_eq!(bounded(&hint, once, once, true), (once, None));
        }
    }
}
