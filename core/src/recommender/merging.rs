//! Merges two histories of one container: the live and the stored one.

use crate::history::Throttling;

use super::{
    container::{CPU_WEIGHT, ContainerHistory, earliest},
    early_samples::EarlySample,
    memory_window,
    model_settings::ModelRules,
    oom::latest_bump,
    plan::ContainerPlan,
};

/// Merges the stored history of the same container. Early live samples that are also stored count once; a stored history
/// without pods does not tell which they are, and upstream counts them twice.
pub(super) fn merge<'a>(
    history: &mut ContainerHistory,
    stored: &ContainerHistory,
    early: impl Iterator<Item = &'a EarlySample>,
    rules: &ModelRules,
) {
    let mut stored = stored.clone();
    merge_plans(history, &mut stored, rules);
    // Convert both sides to the same half-lives first.
    let now = history.memory_samples.last.max(history.cpu_samples.last).unwrap_or(history.created);
    history.adopt_half_lives(now, rules);
    stored.adopt_half_lives(now, rules);
    subtract_duplicates(history, &stored, early, rules);
    let config = rules.memory_histogram_config();
    match (&mut history.restored_aggregate, stored.restored_aggregate.take()) {
        (Some(ours), Some(theirs)) => ours.merge(&theirs.cpu, &theirs.memory, rules),
        (ours, theirs) => *ours = ours.take().or(theirs),
    }
    history.cpu.merge(rules.cpu_histogram_config(), &stored.cpu);
    history.memory.merge(config, &stored.memory);
    match (&mut history.largest_replica, stored.largest_replica.take()) {
        (Some(ours), Some(theirs)) => {
            ours.peaks.merge(config, &theirs.peaks);
            memory_window::merge_windows(&mut ours.peaks, config, &mut ours.window, &theirs.window);
        }
        (ours, theirs) => *ours = ours.take().or(theirs),
    }
    for (ours, theirs) in [
        (&mut history.cpu_samples, stored.cpu_samples),
        (&mut history.memory_samples, stored.memory_samples),
    ] {
        ours.count = ours.count.saturating_add(theirs.count);
        ours.first = earliest(ours.first, theirs.first);
        ours.last = ours.last.max(theirs.last);
    }
    history.created = history.created.min(stored.created);
    history.last_alive = history.last_alive.max(stored.last_alive);
    history.owner = history.owner.take().or(stored.owner);
    if let Some(bump) = stored.bump {
        history.bump = Some(latest_bump(history.bump, bump, rules));
    }
    let measured_at = |of: &Option<Box<Throttling>>| of.as_deref().map(|throttling| throttling.at);
    if measured_at(&stored.throttling) > measured_at(&history.throttling) {
        history.throttling = stored.throttling.take();
    }
    for replica in stored.replicas {
        match history.replicas.binary_search_by(|known| known.name.cmp(&replica.name)) {
            Ok(index) => {
                memory_window::merge_windows(
                    &mut history.memory,
                    config,
                    &mut history.replicas[index],
                    &replica,
                );
            }
            Err(index) => history.replicas.insert(index, replica),
        }
    }
    history.restored |= stored.restored;
    history.built_from_samples |= stored.built_from_samples;
    history.bootstrapped |= stored.bootstrapped;
}

/// Merges planned requests. A stored history without them, such as one of upstream, has them from its histograms.
fn merge_plans(history: &mut ContainerHistory, stored: &mut ContainerHistory, rules: &ModelRules) {
    let Some(plan_rules) = &rules.plan else { return };
    let from_histograms =
        |history: &ContainerHistory| history.plan_from_histograms(rules).map(ContainerPlan::new);
    let theirs = stored.plan.take().or_else(|| from_histograms(&*stored).map(Box::new));
    if let (Some(ours), Some(theirs)) = (&mut history.plan, theirs.clone()) {
        ours.merge(*theirs, plan_rules);
    } else if let Some(mut theirs) = theirs {
        if let Some(ours) = from_histograms(&*history) {
            theirs.merge(ours, plan_rules);
        }
        history.plan = Some(theirs);
    }
}

/// Subtracts live samples that are also stored. Peaks need no change: the larger one of a window is kept.
fn subtract_duplicates<'a>(
    history: &mut ContainerHistory,
    stored: &ContainerHistory,
    early: impl Iterator<Item = &'a EarlySample>,
    rules: &ModelRules,
) {
    for EarlySample { pod, at, cpu, has_memory, .. } in early {
        let index = stored.replicas.binary_search_by(|replica| replica.name.cmp(pod));
        let Some(replica) = index.ok().map(|index| &stored.replicas[index]) else { continue };
        if let Some(cpu) = cpu.filter(|cpu| cpu.0 >= 0 && Some(*at) <= replica.last_cpu) {
            history.cpu.subtract(rules.cpu_histogram_config(), cpu.as_cores(), CPU_WEIGHT, *at);
            history.cpu_samples.count = history.cpu_samples.count.saturating_sub(1);
        }
        if *has_memory && Some(*at) <= replica.last_memory {
            history.memory_samples.count = history.memory_samples.count.saturating_sub(1);
        }
    }
}
