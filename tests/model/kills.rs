//! A recommender that is killed while it saves goes on from what was saved: the same recommendation as
//! one that lived through the same hours without ever stopping.

use std::{cell::RefCell, collections::BTreeMap, path::Path, time::Duration};

use plimsoll_core::{
    history::{Record, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_core::{
    recommender::{
        ContainerHistory, Directives, History, OomKill, Recommendation, Rules, Settings, recommend,
    },
    types::units::{Bytes, MilliCpu},
};

use super::{MIB, START, mix::Noise};
use crate::storage::{
    kill::{child_directory, kill_during_saves, save_until_killed},
    place::place,
};
use crate::support::tier;

const VPAS: usize = 12;
/// CPU samples of each container between two saves.
const SAMPLES: u64 = 20;

/// A recommender in small: what it knows of some VPAs, and up to which save it has lived.
struct Life {
    rules: Rules,
    histories: BTreeMap<VpaKey, History>,
    lived: u64,
}

impl Life {
    fn new() -> Self {
        let rules = Directives::default().rules(None, &Settings::default());
        let vpa = |number| (VpaKey::new("team", format!("workload-{number}")), History::default());
        Self { rules, histories: (0..VPAS).map(vpa).collect(), lived: 0 }
    }

    /// The life that goes on from what a storage remembered.
    fn restored(remembered: &BTreeMap<Key, Snapshot>) -> Self {
        let mut life = Self::new();
        let latest = remembered.values().filter_map(|app| app.cpu_seen.last).max();
        let now = latest.unwrap_or(START);
        for (key, snapshot) in remembered {
            let container = ContainerHistory::from_snapshot(snapshot, now, &life.rules);
            let container = container.expect("what was saved can be taken back");
            let history = life.histories.get_mut(&key.vpa).expect("is one of ours");
            history.restore(key.container.clone(), container, now, &life.rules);
        }
        life.lived = remembered.values().next().map_or(0, |app| app.cpu_seen.count / SAMPLES);
        life
    }

    /// Lives on to the end of a save's span. The same span brings the same samples in every life.
    fn live_to(&mut self, save: u64) {
        for span in self.lived..save {
            for (number, history) in self.histories.values_mut().enumerate() {
                let mut noise = Noise::new(span * VPAS as u64 + number as u64 + 1);
                for sample in 0..SAMPLES {
                    let now = time(span * SAMPLES + sample);
                    let app = history.container_mut("app", now, &self.rules);
                    let pod = format!("pod-{}", sample % 2);
                    let cpu = MilliCpu(50 + noise.below(2000));
                    app.add_cpu(&pod, now, cpu, &self.rules).expect("in order");
                    let memory = Bytes((100 + noise.below(900)) * MIB);
                    app.add_memory(&pod, now, memory, &self.rules).expect("in order");
                    if noise.below(50) == 0 {
                        let kill = OomKill { request: memory, limit: Some(memory), usage: None };
                        app.record_oom(&pod, now, kill, &self.rules).expect("counts");
                    }
                }
            }
        }
        self.lived = save;
    }

    fn records(&self) -> Vec<Record> {
        let now = time(self.lived * SAMPLES);
        let each = self.histories.iter().flat_map(|(vpa, history)| {
            history.iter().map(move |(name, container)| {
                let key = Key::new(vpa.clone(), name.clone());
                Record::new(key, container.to_snapshot(now, &self.rules))
            })
        });
        each.collect()
    }

    fn recommendations(&self) -> Vec<Recommendation> {
        let (directives, settings) = (Directives::default(), Settings::default());
        let now = time(self.lived * SAMPLES);
        let histories = self.histories.values();
        histories.map(|history| recommend(&directives, history, &settings, now)).collect()
    }
}

fn time(sample: u64) -> Time {
    START.later(Duration::from_mins(sample * 3))
}

/// What the child does.
fn live_until_killed(directory: &Path) {
    let life = RefCell::new(Life::new());
    save_until_killed(
        directory,
        |remembered| {
            *life.borrow_mut() = Life::restored(remembered);
            life.borrow().lived
        },
        |save| {
            let mut life = life.borrow_mut();
            life.live_to(save);
            life.records()
        },
    );
}

#[test]
fn after_each_kill_the_recommendation_is_that_of_the_last_completed_save() {
    if let Some(directory) = child_directory() {
        return live_until_killed(&directory);
    }
    let directory = place();
    let mut uninterrupted = Life::new();
    let kills = tier::cases(25, 500);
    let completed = kill_during_saves(
        directory.path(),
        "model::kills::after_each_kill_the_recommendation_is_that_of_the_last_completed_save",
        kills,
        |remembered, completed| {
            let life = Life::restored(&remembered);
            assert!(life.lived >= completed, "save {completed} had completed, not {}", life.lived);
            assert!(life.lived <= completed + 1, "save {} after {completed}", life.lived);
            uninterrupted.live_to(life.lived);
            if life.lived > 0 {
                assert_eq!(life.recommendations(), uninterrupted.recommendations());
            }
            life.lived
        },
    );
    assert!(
        completed > u64::from(kills),
        "{completed} saves in {kills} lives: the kills came too early to tell"
    );
}
