//! Memory use per container, by counting allocations.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use plimsoll_core::recommender::{History, Settings};
use plimsoll_core::types::ObjectKey;

use super::workload_mix;

#[test]
fn a_container_needs_at_most_800_bytes_on_average_with_keys() {
    let settings = Settings::default();
    let step = Duration::from_mins(10);
    let (vpas, mut kept) = (40, BTreeMap::<ObjectKey, History>::new());
    let used = allocation_counter::measure(|| {
        for number in 0..vpas {
            let namespace: Arc<str> = format!("team-{}", number % 10).into();
            let key = ObjectKey::new(namespace, format!("workload-{number}"));
            kept.insert(key, workload_mix::vpa(number, step, &settings));
        }
    });
    let each = used.bytes_current / (vpas * workload_mix::CONTAINERS) as i64;
    assert!(kept.len() == vpas && each > 100, "{each} bytes is implausible");
    assert!(each <= 800, "{each} bytes");
}
