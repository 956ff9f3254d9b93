//! A recommender that is killed during a save continues from its last save, with the same recommendation as one that
//! ran through the same hours without a restart.

use std::{cell::RefCell, collections::BTreeMap, path::Path, time::Duration};

use plimsoll_core::{
    history::{Record, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_core::{
    recommender::{
        ContainerHistory, History, ModelRules, OomKill, Recommendation, Settings, VpaSettings,
        recommend,
    },
    types::units::{Bytes, MilliCpu},
};

use super::{MIB, START, workload_mix::Random};
use crate::storage::{
    process_kill::{child_directory, kill_during_saves, save_until_killed},
    temp_store::temp_directory,
};
use crate::support::tier;

const VPAS: usize = 12;
/// CPU samples of each container between two saves.
const SAMPLES: u64 = 20;

/// A minimal recommender: the histories of some VPAs, and the number of its last save.
struct SavedRecommender {
    rules: ModelRules,
    histories: BTreeMap<ObjectKey, History>,
    saves: u64,
}

impl SavedRecommender {
    fn new() -> Self {
        let rules = VpaSettings::default().rules(None, &Settings::default());
        let vpa =
            |number| (ObjectKey::new("team", format!("workload-{number}")), History::default());
        Self { rules, histories: (0..VPAS).map(vpa).collect(), saves: 0 }
    }

    /// Restores it from the loaded snapshots.
    fn restored(remembered: &BTreeMap<ContainerKey, Snapshot>) -> Self {
        let mut recommender = Self::new();
        let latest = remembered.values().filter_map(|app| app.cpu_seen.last).max();
        let now = latest.unwrap_or(START);
        for (key, snapshot) in remembered {
            let container = ContainerHistory::from_snapshot(snapshot, now, &recommender.rules);
            let container = container.expect("saved snapshot can be restored");
            let history = recommender.histories.get_mut(&key.vpa).expect("is a known name");
            history.restore(key.container.clone(), container, now, &recommender.rules);
        }
        recommender.saves =
            remembered.values().next().map_or(0, |app| app.cpu_seen.count / SAMPLES);
        recommender
    }

    /// Advances to the next save. Each span between saves has the same samples in every run.
    fn advance_to_save(&mut self, save: u64) {
        for span in self.saves..save {
            for (number, history) in self.histories.values_mut().enumerate() {
                let mut noise = Random::new(span * VPAS as u64 + number as u64 + 1);
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
        self.saves = save;
    }

    fn records(&self) -> Vec<Record> {
        let now = time(self.saves * SAMPLES);
        let each = self.histories.iter().flat_map(|(vpa, history)| {
            history.iter().map(move |(name, container)| {
                let key = ContainerKey::new(vpa.clone(), name.clone());
                Record::new(key, container.to_snapshot(now, &self.rules))
            })
        });
        each.collect()
    }

    fn recommendations(&self) -> Vec<Recommendation> {
        let (vpa_settings, settings) = (VpaSettings::default(), Settings::default());
        let now = time(self.saves * SAMPLES);
        let histories = self.histories.values();
        histories.map(|history| recommend(&vpa_settings, history, &settings, now)).collect()
    }
}

fn time(sample: u64) -> Time {
    START.later(Duration::from_mins(sample * 3))
}

/// The child process.
fn run_until_killed(directory: &Path) {
    let recommender = RefCell::new(SavedRecommender::new());
    save_until_killed(
        directory,
        |remembered| {
            *recommender.borrow_mut() = SavedRecommender::restored(remembered);
            recommender.borrow().saves
        },
        |save| {
            let mut recommender = recommender.borrow_mut();
            recommender.advance_to_save(save);
            recommender.records()
        },
    );
}

#[test]
fn after_each_crash_the_recommendation_is_that_of_the_last_completed_save() {
    if let Some(directory) = child_directory() {
        return run_until_killed(&directory);
    }
    let directory = temp_directory();
    let mut uninterrupted = SavedRecommender::new();
    let kills = tier::cases(25, 500);
    let completed = kill_during_saves(
        directory.path(),
        "recommender_model::crash_recovery::after_each_crash_the_recommendation_is_that_of_the_last_completed_save",
        kills,
        |remembered, completed| {
            let recommender = SavedRecommender::restored(&remembered);
            assert!(
                recommender.saves >= completed,
                "save {completed} had completed, not {}",
                recommender.saves
            );
            assert!(
                recommender.saves <= completed + 1,
                "save {} after {completed}",
                recommender.saves
            );
            uninterrupted.advance_to_save(recommender.saves);
            if recommender.saves > 0 {
                assert_eq!(recommender.recommendations(), uninterrupted.recommendations());
            }
            recommender.saves
        },
    );
    assert!(
        completed > u64::from(kills),
        "{completed} saves in {kills} runs: too few, the kills came too early"
    );
}
