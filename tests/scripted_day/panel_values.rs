//! Expected values of some panels of each board on the scripted day.

use std::collections::BTreeMap;

use xtask::pictures::{Picture, Series};

const MEBIBYTE: f64 = 1_048_576.0;

/// The boards, by name.
pub struct Boards<'a>(pub &'a [Picture]);

impl Boards<'_> {
    /// The series of a panel's target.
    fn series(&self, board: &str, panel: &str, letter: &str) -> &[Series] {
        let picture = self.0.iter().find(|one| one.board == board);
        let picture = picture.unwrap_or_else(|| panic!("no board {board}"));
        let mut found = picture.answers.iter();
        let panel_data = found.find(|one| one.panel == panel && one.letter == letter);
        &panel_data.unwrap_or_else(|| panic!("{board} has no {panel} {letter}")).series
    }

    /// The latest value of each series, by one of its labels.
    fn latest(&self, board: &str, panel: &str, letter: &str, label: &str) -> BTreeMap<String, f64> {
        let series = self.series(board, panel, letter).iter();
        let latest = series.map(|one| {
            let name = one.labels.get(label).cloned().unwrap_or_default();
            (name, one.points.last().expect("a point").1)
        });
        latest.collect()
    }

    /// All values of the only series with this label value.
    fn all(&self, place: (&str, &str, &str), label: &str, value: &str) -> Vec<f64> {
        let (board, panel, letter) = place;
        let mut found = self
            .series(board, panel, letter)
            .iter()
            .filter(|one| one.labels.get(label).map(String::as_str).unwrap_or_default() == value);
        let one =
            found.next().unwrap_or_else(|| panic!("{place:?}: no series with {label} {value}"));
        assert!(found.next().is_none(), "{place:?}: several series with {label} {value}");
        one.points.iter().map(|(_, value)| *value).collect()
    }
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn by<const N: usize>(values: [(&str, f64); N]) -> BTreeMap<String, f64> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Leadership, capping, and deviations of requests from the need.
pub fn overview(boards: &Boards<'_>) {
    let board = "overview";
    let roles = by([("recommender", 1.0), ("updater", 1.0), ("watermark", 1.0)]);
    assert_eq!(boards.latest(board, "Leaders", "A", "role"), roles);
    let restricted = boards.latest(board, "Watermark: active restrictions", "A", "reason");
    assert_eq!(
        restricted.keys().collect::<Vec<_>>(),
        ["dry_run"],
        "only `queried`, until the end of the day"
    );
    let restricted = boards.latest(board, "Vertical: active restrictions", "A", "name");
    assert!(restricted.contains_key("capped"), "its maximum is below what it uses: {restricted:?}");
    let of = |letter| boards.latest(board, "Largest CPU gaps, in cores", letter, "name")["capped"];
    assert_eq!((of("A"), of("B"), of("C")), (0.1, 0.1, 0.2), "its requests, and its maximum");
    // The series starts with the first eviction.
    let evictions = boards.all((board, "Pod updates", "A"), "action", "evict");
    let sum = evictions.iter().sum::<f64>();
    assert!((10.0..=13.0).contains(&sum), "four pods, three times each: {evictions:?}");
    let kills = boards.all((board, "OOM kills", "A"), "name", "leaks");
    assert!((kills.iter().sum::<f64>() - 1.0).abs() < 0.1, "one: {kills:?}");
}

/// The board of `leaks`: the effect of the OOM kill.
pub fn vertical(boards: &Boards<'_>) {
    let board = "vertical";
    let mode = boards.series(board, "Update mode", "A");
    assert_eq!(mode[0].labels["update_mode"], "InPlaceOrRecreate");
    assert_eq!(boards.latest(board, "Pods", "A", ""), by([("", 2.0)]));
    let use_of_memory = boards.all((board, "Memory", "F"), "", "");
    // The upper bound of the bucket of 60 MiB.
    assert!((60.0..65.0).contains(&(use_of_memory[0] / MEBIBYTE)), "{use_of_memory:?}");
    let target = boards.all((board, "Memory", "C"), "", "");
    assert_eq!(target[0], 250.0 * MEBIBYTE, "the minimum");
    // OOM-killed at 250 MiB, which is raised by 100 MiB and the safety margin of 15 percent.
    let last = *target.last().expect("a point");
    let bumped = 1.15 * 350.0 * MEBIBYTE;
    assert!((bumped..1.1 * bumped).contains(&last), "{last}");
    let kills = boards.all((board, "OOM kills", "A"), "container", "main");
    assert!((kills.iter().sum::<f64>() - 1.0).abs() < 0.1, "one: {kills:?}");
}

/// The board of `flaps`: alternating proposals, the result, and the reason.
pub fn watermark(boards: &Boards<'_>) {
    let board = "watermark";
    let place = |panel, letter| (board, panel, letter);
    let proposed = boards.all(place("Proposed and desired replicas", "A"), "metric", "requests");
    assert!(most(&proposed) > 12.0 && least(&proposed) == 1.0, "{proposed:?}");
    let decided = boards.all(place("Proposed and desired replicas", "B"), "", "");
    assert_eq!((decided[0], most(&decided)), (4.0, 12.0), "at most the maximum");
    let reasons = boards.series(board, "Restrictions", "A").iter();
    let mut reasons: Vec<&str> = reasons.map(|one| one.labels["reason"].as_str()).collect();
    reasons.sort_unstable();
    let expected =
        ["downscale_capping", "forbidden_window", "max", "upscale_capping", "within_bounds"];
    assert_eq!(reasons, expected);
    let of = |letter| boards.all(place("Value and watermarks", letter), "", "");
    assert_eq!((of("B")[0], of("C")[0], of("E")[0]), (100.0, 50.0, 75.0), "300 by four pods");
    assert_eq!(boards.latest(board, "Dry run", "A", ""), by([("", 0.0)]));
}

/// Health of the controllers.
pub fn controller(boards: &Boards<'_>) {
    let board = "controller";
    let place = |panel, letter| (board, panel, letter);
    let fresh = boards.latest(board, "VPAs by recommender heartbeat", "A", "state");
    assert_eq!(fresh["fresh"], 3.0, "{fresh:?}");
    let spent = boards.all(place("Disruption budgets used", "A"), "charge", "disruption");
    assert_eq!((most(&spent), *spent.last().expect("a point")), (1.0, 0.0), "two of two, once");
    let synced = boards.latest(board, "Watches synced", "A", "job");
    assert_eq!(synced, by([("kube-system/plimsoll", 1.0)]));
    // A pass is scraped at once or with the next scrape: the clock does not move between them.
    let since = boards.series(board, "Time since last successful pass", "A");
    let all = since.iter().flat_map(|one| &one.points).map(|(_, value)| *value);
    let all: Vec<f64> = all.collect();
    assert!(least(&all) >= 0.0 && most(&all) <= 180.0, "at most a step and a scrape: {all:?}");
}

/// The available history, also while the server does not respond.
pub fn history(boards: &Boards<'_>) {
    let board = "history";
    let place = |panel, letter| (board, panel, letter);
    assert_eq!(boards.latest(board, "Containers with history", "A", ""), by([("", 3.0)]));
    let kills = place("OOM kills by source and outcome", "A");
    let counted = boards
        .series(kills.0, kills.1, kills.2)
        .iter()
        .filter(|one| one.labels["source"] == "pod_update" && one.labels["outcome"] == "counted");
    let counted: f64 = counted.flat_map(|one| &one.points).map(|(_, value)| value).sum();
    assert!((counted - 1.0).abs() < 0.1, "{counted}");
    let panel = "Queries by outcome";
    let answered = boards.all(place(panel, "A"), "outcome", "ok");
    let unanswered = boards.all(place(panel, "A"), "outcome", "unavailable");
    // Once per step; the window of the rate contains four or six steps.
    let once = |rates: &[f64]| (0.9..=1.3).contains(&(most(rates) * 120.0));
    assert!(once(&answered), "once per step: {answered:?}");
    assert!(once(&unanswered), "the same: {unanswered:?}");
    assert_eq!((least(&answered), *unanswered.last().expect("a point")), (0.0, 0.0));
    let oldest = boards.all(place("Age of the latest sample", "A"), "kind", "wpa");
    assert!((3_400.0..=3_900.0).contains(&most(&oldest)), "at least an hour: {oldest:?}");
    assert!(
        oldest.last().is_some_and(|age| *age <= 180.0),
        "at most a period and a scrape: {oldest:?}"
    );
}
