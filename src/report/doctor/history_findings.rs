//! Findings about history: how far back it goes, whether it has gaps, what reading it costs, and recording rules for usage.

use std::time::Duration;

use plimsoll_storage::prometheus::schema::RecordingRules;

use super::{
    ProbeResults,
    diagnose::{finding, grouped},
    probe_results::{Depth, ProbeAnswer, SampleRead},
    report::{Evidence, Finding, Level, Range, Topic},
};
use crate::report::style::format_span;

/// The maximum number of VPAs named in a message.
const MAX_NAMED: usize = 5;

/// Returns the age of the oldest sampled time that has series.
pub(super) fn oldest_age(facts: &ProbeResults) -> Option<Duration> {
    let has = |depth: &&Depth| depth.containers.answer.as_ref().is_ok_and(|n| *n > 0);
    facts.depth.iter().filter(has).map(|depth| depth.age).max()
}

/// Reports how far back history goes, and its gaps.
pub(super) fn history(facts: &ProbeResults, oldest: Option<Duration>) -> Vec<Finding> {
    if facts.depth.is_empty() {
        return Vec::new();
    }
    let evidence: Vec<Evidence> =
        facts.depth.iter().flat_map(|depth| depth.containers.evidence.clone()).collect();
    let new_finding =
        |code, level, message: String| finding(Topic::History, code, level, message, &evidence);
    if let Some(error) = facts.depth.iter().find_map(|depth| depth.containers.answer.as_ref().err())
    {
        let message = format!("Cannot determine how far back history goes: {error}");
        return vec![new_finding("history_unknown", Level::Problem, message)];
    }
    let wanted = format_span(facts.wanted_history);
    let Some(oldest) = oldest else {
        let message = "No container has series, neither now nor in the past: there is no history to start from.";
        return vec![new_finding("history_none", Level::Problem, message.to_owned())];
    };
    let counts = facts.depth.iter().map(|depth| *depth.containers.answer.as_ref().unwrap_or(&0));
    let counts: Vec<u64> = counts.collect();
    let mut findings = Vec::new();
    if oldest < facts.wanted_history {
        let extent = if oldest.is_zero() {
            "History has only just started".to_owned()
        } else {
            format!("History goes back {}", format_span(oldest))
        };
        let message = format!(
            "{extent}, not {wanted}: confidence in recommendations is lower, and grows with each day."
        );
        findings.push(new_finding("history_short", Level::Warning, message));
    } else {
        let message = format!("History goes back {wanted}, as is wanted.");
        findings.push(new_finding("history_length", Level::Ok, message));
    }
    let oldest_index = facts.depth.iter().position(|depth| depth.age == oldest).unwrap_or(0);
    let gaps: Vec<String> = (0..oldest_index)
        .filter(|&at| counts[at] == 0)
        .map(|at| match facts.depth[at].age {
            Duration::ZERO => "now".to_owned(),
            back => format!("{} ago", format_span(back)),
        })
        .collect();
    if !gaps.is_empty() {
        let message = format!(
            "There are no series {}, although there are older ones: scraping was, or is, interrupted.",
            gaps.join(", ")
        );
        let level = if counts[0] == 0 { Level::Problem } else { Level::Warning };
        findings.push(new_finding("history_gaps", level, message));
    }
    findings
}

/// Reports the cost of reading history, measured by the sample read. `oldest` is how far back history goes.
pub(super) fn cost(facts: &ProbeResults, oldest: Option<Duration>) -> Option<Finding> {
    let SampleRead { scope, queries, failure, .. } = facts.sample_read.as_ref()?;
    let new_finding =
        |code, level, message: String| finding(Topic::History, code, level, message, queries);
    if let Some(failure) = failure {
        let message = format!("Cannot read the history of {scope}: {failure}");
        return Some(new_finding("history_refused", Level::Problem, message));
    }
    let sum = |of: fn(&Evidence) -> u64| queries.iter().map(of).sum::<u64>();
    let ranges = || queries.iter().filter_map(|query| query.range);
    // The first point covers the step before it.
    let begin =
        |range: Range| range.from.earlier(Duration::from_secs_f64(range.step_seconds.max(0.0)));
    let from = ranges().map(begin).min()?;
    let to = ranges().map(|range| range.to).max()?;
    let length = Duration::from_nanos(to.nanos_since(from).unsigned_abs());
    let points = sum(|query| query.points);
    let again = match queries.iter().filter(|query| query.error.is_some()).count() {
        0 => String::new(),
        count => format!("; {count} were too large, and were split"),
    };
    let summary = format!(
        "{} of {scope} took {} ms in {} queries for {} points of {} series{again}",
        format_span(length),
        grouped(&sum(|query| query.millis).to_string()),
        sum(|query| query.requests),
        grouped(&points.to_string()),
        grouped(&sum(|query| query.series).to_string()),
    );
    // The server has only just started to scrape. The latest minutes are covered by live usage, not by history.
    if points == 0 && oldest == Some(Duration::ZERO) {
        let message =
            format!("{summary}: they return no points yet, because history has only just started.");
        return Some(new_finding("history_young", Level::Warning, message));
    }
    if points == 0 {
        let message = format!("{summary}: they return no points, although there are series.");
        return Some(new_finding("history_empty", Level::Problem, message));
    }
    Some(new_finding("history_cost", Level::Ok, format!("{summary}.")))
}

/// Reports the VPAs without history, if others have some.
pub(super) fn missing_history_finding(facts: &ProbeResults) -> Option<Finding> {
    let SampleRead { scope, queries, failure, vpas_without_history: without_history } =
        facts.sample_read.as_ref()?;
    let is_empty = queries.iter().all(|query| query.points == 0);
    if failure.is_some() || is_empty || without_history.is_empty() {
        return None;
    }
    let named: Vec<&str> = without_history.iter().take(MAX_NAMED).map(String::as_str).collect();
    let rest = match without_history.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "Of {scope}, {} have no history: {}{rest}. The server has series of the namespace, but none of their pods within \
         the last day. A recommender starts these VPAs from live usage and sets the condition HistoryNotFound. Check \
         that their pods are scraped and that relabelling keeps the pod names.",
        without_history.len(),
        named.join(", "),
    );
    Some(finding(Topic::History, "history_not_found", Level::Warning, message, queries))
}

/// With more containers than this, reading history is slow, and recording rules are worth their cost.
const MANY: u64 = 2000;

pub(super) fn recording_rules_finding(facts: &ProbeResults) -> Option<Finding> {
    let ProbeAnswer { evidence, answer } = facts.recording_rules.as_ref()?;
    let (code, level, message) = match answer {
        Ok(recorded) => assess_rules(facts, *recorded)?,
        Err(why) => {
            let message =
                format!("Cannot check for recording rules for usage, so they are not used: {why}");
            ("recorded_unknown", Level::Ok, message)
        }
    };
    Some(finding(Topic::History, code, level, message, evidence))
}

fn assess_rules(
    facts: &ProbeResults,
    recorded: RecordingRules,
) -> Option<(&'static str, Level, String)> {
    let wanted = format_span(facts.wanted_history);
    match recorded {
        RecordingRules::Complete => {
            let message = format!(
                "Recording rules cover usage for {wanted}: history is read from them, which is cheaper."
            );
            Some(("recorded", Level::Ok, message))
        }
        RecordingRules::Incomplete { at, containers, total_containers: total }
            if at >= facts.at =>
        {
            let message = format!(
                "Recording rules cover {} of {} containers: check that they select the same job and keep the same labels. \
                 History is read from the raw series.",
                grouped(&containers.to_string()),
                grouped(&total.to_string())
            );
            Some(("recorded_part", Level::Warning, message))
        }
        RecordingRules::Incomplete { .. } => {
            let message = format!(
                "Recording rules for usage exist, but not yet for {wanted}: until then, history is read from the raw \
                 series. `promtool tsdb create-blocks-from rules` backfills them."
            );
            Some(("recorded_young", Level::Ok, message))
        }
        RecordingRules::Absent => {
            let schema = facts.schema.answer.as_ref().ok()?;
            let containers = schema.usage.containers;
            let message = format!(
                "With {} containers, recording rules would make history much cheaper to read: \
                 deploy/recommender/rules.yaml contains them.",
                grouped(&containers.to_string())
            );
            (containers >= MANY).then_some(("recorded_none", Level::Ok, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::Time;

    use super::*;
    use crate::report::doctor::diagnose::tests::facts;

    fn codes_and_levels(findings: &[Finding]) -> Vec<(&str, Level)> {
        findings.iter().map(|finding| (&*finding.code, finding.level)).collect()
    }

    #[test]
    fn a_short_history_or_one_with_gaps_is_reported() {
        let (ok, warning, problem) = (Level::Ok, Level::Warning, Level::Problem);
        for (depth, expected) in [
            (&[(0, 5), (24, 5), (192, 5)][..], &[("history_length", ok)][..]),
            (&[(0, 5), (24, 5), (192, 0)], &[("history_short", warning)]),
            (&[(0, 5), (24, 0), (192, 5)], &[("history_length", ok), ("history_gaps", warning)]),
            (&[(0, 0), (24, 5), (192, 5)], &[("history_length", ok), ("history_gaps", problem)]),
            (&[(0, 0), (24, 0), (192, 0)], &[("history_none", problem)]),
        ] {
            let facts = facts(depth);
            assert_eq!(
                codes_and_levels(&history(&facts, oldest_age(&facts))),
                expected,
                "{depth:?}"
            );
        }
        let mut facts = facts(&[(0, 5), (192, 5)]);
        facts.depth[1].containers = ProbeAnswer::default();
        assert_eq!(
            codes_and_levels(&history(&facts, oldest_age(&facts))),
            [("history_unknown", problem)]
        );
    }

    #[test]
    fn vpas_without_history_are_reported_if_others_have_one() {
        let query = |points| Evidence { points, ..Evidence::default() };
        let sample = |points, without_history: &[&str], failure: Option<&str>| SampleRead {
            scope: "8 VPAs of namespace shop".to_owned(),
            queries: vec![query(points)],
            failure: failure.map(str::to_owned),
            vpas_without_history: without_history.iter().map(ToString::to_string).collect(),
        };
        let six = ["shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "shop/f"];
        for (sample, words) in [
            (sample(60, &[], None), None),
            (sample(60, &["shop/web"], None), Some("1 have no history: shop/web. The server")),
            (
                sample(60, &six, None),
                Some("6 have no history: shop/a, shop/b, shop/c, shop/d, shop/e and 1 more."),
            ),
            (sample(0, &["shop/web"], None), None),
            (sample(60, &["shop/web"], Some("no")), None),
        ] {
            let mut facts = facts(&[(0, 5)]);
            facts.sample_read = Some(sample);
            let found = missing_history_finding(&facts);
            assert_eq!(found.is_some(), words.is_some(), "{found:?}");
            if let (Some(found), Some(words)) = (found, words) {
                assert_eq!((&*found.code, found.level), ("history_not_found", Level::Warning));
                assert!(found.message.contains(words), "{}", found.message);
            }
        }
    }

    #[test]
    fn an_unreadable_history_has_no_cost_estimate() {
        let range =
            Range { from: Time::from_secs(60), to: Time::from_secs(3600), step_seconds: 60.0 };
        let query = |points, error: Option<&str>| Evidence {
            range: Some(range),
            requests: 1,
            points,
            error: error.map(ToOwned::to_owned),
            ..Evidence::default()
        };
        for (queries, failure, code, words) in [
            (vec![query(60, None)], None, "history_cost", "1 h of namespace shop took"),
            (vec![query(0, Some("large")), query(60, None)], None, "history_cost", "were split"),
            (vec![query(0, None)], None, "history_empty", "they return no points"),
            (
                vec![query(0, Some("no"))],
                Some("no"),
                "history_refused",
                "Cannot read the history of namespace shop: no",
            ),
        ] {
            let mut facts = facts(&[]);
            let failure = failure.map(str::to_owned);
            let scope = "namespace shop".to_owned();
            facts.sample_read =
                Some(SampleRead { scope, queries, failure, vpas_without_history: Vec::new() });
            let finding = cost(&facts, None).expect("a finding");
            assert_eq!(finding.code, code);
            assert!(finding.message.contains(words), "{}", finding.message);
        }
        assert_eq!(cost(&facts(&[]), None), None);
        let mut young = facts(&[(0, 5), (24, 0)]);
        let (scope, queries) = ("namespace shop".to_owned(), vec![query(0, None)]);
        young.sample_read =
            Some(SampleRead { scope, queries, failure: None, vpas_without_history: Vec::new() });
        let finding = cost(&young, oldest_age(&young)).expect("a finding");
        assert_eq!((&*finding.code, finding.level), ("history_young", Level::Warning));
    }
}
