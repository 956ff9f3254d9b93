//! The text output about a planned request: what was decided, and each number of it.

use plimsoll_core::{
    recommender::plan::{
        CpuDecision, CpuOutcome, HourCost, KeptBecause, MemoryDecision, MemoryOutcome,
        PlanDecision, PlanEvaluation, PlannedRequest,
    },
    types::Time,
};

use super::resource_text::trimmed;
use crate::report::explain::report_parts::ago;

const MEBIBYTE: f64 = 1_048_576.0;

/// Returns labelled lines that explain a planned request.
pub(super) fn lines(plan: &PlannedRequest, at: Time) -> Vec<(&'static str, String)> {
    let profile = plan.replaced.map_or_else(
        || plan.profile.to_string(),
        |replaced| format!("{} in place of {replaced}: the update mode evicts pods", plan.profile),
    );
    let mut lines = vec![("profile", profile)];
    match &plan.decision {
        PlanDecision::Cpu(decision) => cpu_lines(decision, &mut lines),
        PlanDecision::Memory(decision) => memory_lines(decision, at, &mut lines),
    }
    lines
}

fn cpu_lines(decision: &CpuDecision, lines: &mut Vec<(&'static str, String)>) {
    lines.push(("decision", outcome(decision)));
    let Some(plan) = &decision.plan else { return };
    if matches!(decision.outcome, CpuOutcome::Changed { out_of_turn: true }) {
        let (share, request) = (percent(decision.alarm), cores(decision.request));
        lines.push(("at once", format!("{share} of the last half hour lay above {request}")));
    }
    lines.push(("cost", costs(plan)));
    let best = cores(plan.best);
    let gain = format!(
        "{best} saves {} of a day's usage over the next {} h; a change must save {}",
        share(plan.gain),
        plan.horizon_hours,
        share(plan.price)
    );
    lines.push(("gain", gain));
    let below = percent(plan.share_below_best);
    let usage = format!("from {:02}:00 UTC, {below} of the usage was up to {best}", plan.hour);
    lines.push(("usage", usage));
    if let Some(forgotten) = plan.forgotten {
        let left_out = format!(
            "usage up to {}: nothing was above {} in the last {} days",
            cores(forgotten),
            cores(plan.highest),
            plan.days
        );
        lines.push(("left out", left_out));
    }
    lines.push(("next hour", cores(plan.next_hour)));
}

fn outcome(decision: &CpuDecision) -> String {
    let request = cores(decision.request);
    let best = decision.plan.map_or_else(|| "unknown".to_owned(), |plan| cores(plan.best));
    match decision.outcome {
        CpuOutcome::Changed { .. } => format!("changed from {request} to {best}"),
        CpuOutcome::Kept(because) => {
            let because = match because {
                KeptBecause::NoSamples => "there are no samples".to_owned(),
                KeptBecause::NotDue => "the next plan is not due".to_owned(),
                KeptBecause::GainBelowPrice => {
                    format!("a change to {best}, the best level, saves less than its price")
                }
                KeptBecause::StepTooSmall => format!("the step to {best} is too small"),
                KeptBecause::NoRecentSamples => {
                    format!("there are no recent samples to lower it to {best}")
                }
                KeptBecause::UndoneWithinTheHour => {
                    format!("a change to {best} would be undone within the hour")
                }
            };
            format!("kept {request}: {because}")
        }
    }
}

fn costs(plan: &PlanEvaluation) -> String {
    let cost = |cost: &HourCost| {
        format!(
            "{} ({} idle + {} short + {} above)",
            share(cost.total()),
            share(cost.idle),
            share(cost.short),
            share(cost.above)
        )
    };
    format!(
        "this hour at {}: {} of an hour's usage; at {}: {}",
        cores(plan.best_cost.request),
        cost(&plan.best_cost),
        cores(plan.present_cost.request),
        cost(&plan.present_cost)
    )
}

fn memory_lines(decision: &MemoryDecision, at: Time, lines: &mut Vec<(&'static str, String)>) {
    let (request, target) = (mebibytes(decision.request), mebibytes(decision.target));
    let outcome = match decision.outcome {
        MemoryOutcome::Raised => format!("raised from {request} to {target}"),
        MemoryOutcome::Lowered => format!("lowered from {request} to {target}"),
        MemoryOutcome::CloseEnough => format!("kept {request}: it is close enough"),
        MemoryOutcome::RecentlyChanged => {
            format!("kept {request}: the last change is too recent to lower it")
        }
        MemoryOutcome::NoRecentSamples => {
            format!("kept {request}: there are no recent samples to lower it")
        }
    };
    lines.push(("decision", outcome));
    let wanted = mebibytes(decision.wanted);
    let peak = match decision.oom_at {
        Some(killed) => {
            format!("OOM-killed {}: {wanted} until usage shows otherwise", ago(killed, at))
        }
        None => format!(
            "highest usage of today and {} days: {}, on the day from {}; with {} % margin {wanted}",
            decision.days,
            mebibytes(decision.peak),
            jiff::Timestamp::from(decision.peak_day).strftime("%A %H:%M UTC"),
            trimmed(decision.margin * 100.0, 1),
        ),
    };
    lines.push(("peak", peak));
}

fn cores(cores: f64) -> String {
    if cores < 0.1 {
        format!("{}m", trimmed(cores * 1000.0, 1))
    } else {
        format!("{} cores", trimmed(cores, 2))
    }
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / MEBIBYTE)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn share(share: f64) -> String {
    trimmed(share, 3)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::recommender::plan::{
        CpuPlan, CpuPlanSettings, PeakWindow, PeakWindowSettings, PlanProfile,
    };

    use super::*;

    fn text(decision: PlanDecision, at: Time) -> String {
        let plan = PlannedRequest { profile: PlanProfile::Tide, replaced: None, decision };
        let lines: Vec<_> =
            lines(&plan, at).iter().map(|(label, text)| format!("{label}: {text}")).collect();
        lines.join("\n") + "\n"
    }

    #[test]
    fn a_plan_is_explained_with_every_step() {
        let settings = CpuPlanSettings::of(PlanProfile::Tide);
        let mut plan = CpuPlan::new(Time::EPOCH);
        let minute = |minute: i64| Time::from_secs(minute * 60);
        for at in 0..180 {
            plan.add(&settings, minute(at), [0.1, 0.2, 0.4][at as usize % 3], Some(0.3));
        }
        let changed = plan.decide(&settings, minute(179), 0.3);
        let changed = text(PlanDecision::Cpu(changed), minute(179));
        for part in [
            "profile: tide",
            "decision: changed from 0.3 cores to 0.41 cores",
            "over the next 24 h; a change must save 0.005",
            "cost: this hour at 0.41 cores: ",
            "usage: from 02:00 UTC, 100 % of the usage was up to 0.41 cores",
            "next hour: 0.41 cores",
        ] {
            assert!(changed.contains(part), "{part}: {changed}");
        }
        assert!(!changed.contains("at once"), "{changed}");
        let alarm = plan.decide(&settings, minute(180), 0.25);
        let alarm = text(PlanDecision::Cpu(alarm), minute(180));
        assert!(alarm.contains("of the last half hour lay above 0.25 cores"), "{alarm}");
        let kept = plan.decide(&settings, minute(300), 0.41);
        let kept = text(PlanDecision::Cpu(kept), minute(300));
        assert!(kept.contains("decision: kept 0.41 cores: "), "{kept}");
    }

    #[test]
    fn a_replaced_profile_is_named() {
        let mut plan = CpuPlan::new(Time::EPOCH);
        let settings = CpuPlanSettings::of(PlanProfile::Steady);
        let decision = PlanDecision::Cpu(plan.decide(&settings, Time::EPOCH, 0.3));
        let (profile, replaced) = (PlanProfile::Steady, Some(PlanProfile::Tide));
        let lines = lines(&PlannedRequest { profile, replaced, decision }, Time::EPOCH);
        let text = "steady in place of tide: the update mode evicts pods";
        assert_eq!(lines[0], ("profile", text.to_owned()));
    }

    #[test]
    fn memory_is_explained_with_its_highest_day_or_its_kill() {
        let settings = PeakWindowSettings::default();
        let mut window = PeakWindow::new(Time::EPOCH);
        window.add(&settings, Time::EPOCH, 500.0 * MEBIBYTE);
        let decision = window.decide(&settings, Time::EPOCH, 100.0 * MEBIBYTE).expect("samples");
        let raised = text(PlanDecision::Memory(decision), Time::EPOCH);
        assert!(raised.contains("decision: raised from 100 MiB to 600 MiB"), "{raised}");
        assert!(raised.contains("500 MiB, on the day from Thursday 00:00 UTC"), "{raised}");
        assert!(raised.contains("with 20 % margin 600 MiB"), "{raised}");
        let request = window.add_oom(&settings, Time::EPOCH, 600.0 * MEBIBYTE);
        let decision = window.decide(&settings, Time::EPOCH, request).expect("samples");
        let killed = text(PlanDecision::Memory(decision), Time::EPOCH);
        assert!(killed.contains("peak: OOM-killed"), "{killed}");
        assert!(killed.contains("720 MiB until usage shows otherwise"), "{killed}");
    }
}
