//! What a Java virtual machine could do with: a smaller heap, by the data that stays in it.

use super::{
    need::{amount_text, limit_of},
    runtime_bounds::JvmMemory,
    survey::{Container, Resource, RuntimeHint},
    thresholds::JvmThresholds,
};
use crate::types::units::{Bytes, round_up_to_multiple};

/// A heap that is not smaller by this share is not worth a change, in percent.
const MIN_SAVING_PERCENT: i128 = 10;

/// A smaller heap, with the memory of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleHeap {
    /// The maximum of the heap, in whole MiB.
    pub heap: i64,
    /// The memory of the container.
    pub memory: i64,
    /// What to do, and why.
    pub remark: String,
}

/// A smaller heap; `None` if that of the container is right, or if something is unknown. A machine that collects garbage all
/// the time needs what it has.
pub fn possible_heap(
    container: &Container,
    jvm: &JvmMemory,
    thresholds: &JvmThresholds,
) -> Option<PossibleHeap> {
    let RuntimeHint::Jvm { known_by, max_heap, max_heap_percent } = container.runtime.as_deref()?
    else {
        return None;
    };
    let (live, collections) = (jvm.live_data?, jvm.collection_share?);
    if collections >= thresholds.max_collection_share {
        return None;
    }
    let by_limit = || {
        let limit = i128::from(limit_of(container, Resource::Memory)?);
        i64::try_from(limit * i128::from((*max_heap_percent)?) / 100).ok()
    };
    let current = max_heap.map(|heap| heap.0).or_else(by_limit)?;
    let heap = Bytes::from_f64(live.as_f64() * thresholds.heap_factor).0;
    let heap = round_up_to_multiple(heap.max(1), 1 << 20).ok()?;
    if i128::from(heap) * 100 > i128::from(current) * (100 - MIN_SAVING_PERCENT) {
        return None;
    }
    let memory = jvm.memory_with_heap(heap);
    let remark = format!(
        "possible: memory {} with -Xmx{}m instead of {known_by}; {} stay in the heap, and at most {:.1} % of an hour is \
         garbage collection",
        amount_text(Resource::Memory, memory),
        heap >> 20,
        amount_text(Resource::Memory, live.0),
        collections * 100.0,
    );
    Some(PossibleHeap { heap, memory, remark })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rightsizing::{
        survey::Amounts,
        testing::{MI, amounts, container},
    };

    const GI: i64 = 1024 * MI;

    fn java(max_heap: Option<i64>, percent: Option<u8>, limit: Option<i64>) -> Container {
        let mut main = container(Amounts::default(), amounts(None, limit));
        main.runtime = Some(Box::new(RuntimeHint::Jvm {
            known_by: "-Xmx2g".to_owned(),
            max_heap: max_heap.map(Bytes),
            max_heap_percent: percent,
        }));
        main
    }

    fn jvm(live: Option<i64>, collection_share: Option<f64>) -> JvmMemory {
        JvmMemory {
            non_heap: Bytes(100 * MI),
            threads: 50,
            live_data: live.map(|live| Bytes(live * MI)),
            collection_share,
            ..JvmMemory::default()
        }
    }

    #[test]
    fn the_heap_is_a_multiple_of_the_data_that_stays() {
        let thresholds = JvmThresholds::default();
        let quiet = jvm(Some(200), Some(0.012));
        for (name, container, jvm, expected) in [
            // 2.5 x 200, and (500 + 100 + 50) x 1.1.
            ("fixed", java(Some(2 * GI), None, None), quiet, Some((500, 715))),
            ("a share of the limit", java(None, Some(50), Some(4 * GI)), quiet, Some((500, 715))),
            ("a share of nothing", java(None, Some(50), None), quiet, None),
            ("unknown heap", java(None, None, Some(4 * GI)), quiet, None),
            ("not much smaller", java(Some(550 * MI), None, None), quiet, None),
            ("busy", java(Some(2 * GI), None, None), jvm(Some(200), Some(0.05)), None),
            ("unknown collections", java(Some(2 * GI), None, None), jvm(Some(200), None), None),
            ("unknown data", java(Some(2 * GI), None, None), jvm(None, Some(0.0)), None),
            ("not Java", container(Amounts::default(), Amounts::default()), quiet, None),
        ] {
            let found = possible_heap(&container, &jvm, &thresholds);
            let found = found.map(|found| (found.heap / MI, found.memory / MI));
            assert_eq!(found, expected, "{name}");
        }
        let found = possible_heap(&java(Some(2 * GI), None, None), &quiet, &thresholds);
        assert_eq!(
            found.expect("a smaller heap").remark,
            "possible: memory 715Mi with -Xmx500m instead of -Xmx2g; 200Mi stay in the heap, and at most 1.2 % of an hour is \
             garbage collection"
        );
    }

    proptest! {
        #[test]
        fn a_possible_heap_is_smaller_and_fits_into_its_memory(
            live in 0..100_000_i64,
            heap in 1..100_000_i64,
        ) {
            let container = java(Some(heap * MI), None, None);
            let thresholds = JvmThresholds::default();
            if let Some(found) = possible_heap(&container, &jvm(Some(live), Some(0.0)), &thresholds) {
                prop_assert!(found.heap < heap * MI && found.heap >= live * MI);
                prop_assert!(found.memory > found.heap);
            }
        }
    }
}
