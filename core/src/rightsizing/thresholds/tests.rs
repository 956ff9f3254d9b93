//! The defaults, and what is said of files that cannot be used.

use proptest::prelude::*;

use super::*;

#[test]
fn the_defaults_are_those_of_the_tables() {
    let yaml = Thresholds::default().to_yaml().expect("YAML");
    let expected = "\
unsaid:
  coveredHours: 24.0
  samples: 100
  runs: 3
  seenRunsShare: 0.6
risk:
  cpu:
    criticalThrottledShare: 0.25
    highThrottledShare: 0.1
    highAboveRequestShare: 0.2
    highBelowTarget: 100m
    mediumShareOfTarget: 0.9
    mediumTargetWithoutRequest: 25m
  memory:
    highPeakShareOfLimit: 0.95
    highBelowTarget: 64Mi
    highPeakWithoutRequest: 128Mi
    mediumShareOfTarget: 0.9
waste:
  high:
    share: 0.5
    cpu: \"1\"
    memory: 2Gi
    monthlyCost: 50.0
  medium:
    share: 0.3
    cpu: 250m
    memory: 512Mi
    monthlyCost: 10.0
  lowShare: 0.1
change:
  share: 0.1
nodeGroups:
  ratio: 1.5
  cpu: 500m
  memory: 1Gi
pageCache:
  share: 0.3333333333333333
  dailyShare: 0.3
  keptShare: 0.5
jvm:
  heapFactor: 2.5
  maxCollectionShare: 0.05
";
    assert_eq!(yaml, expected);
    assert_eq!(Thresholds::from_yaml(&yaml), Ok(Thresholds::default()));
}

#[test]
fn missing_fields_have_their_defaults() {
    let changed = "risk:\n  memory:\n    highBelowTarget: 32Mi\n";
    let thresholds = Thresholds::from_yaml(changed).expect("valid");
    let mut expected = Thresholds::default();
    expected.risk.memory.high_below_target = mebibytes(32);
    assert_eq!(thresholds, expected);
    for empty in ["", "\n", "# only a comment\n"] {
        assert_eq!(Thresholds::from_yaml(empty), Ok(Thresholds::default()), "{empty:?}");
    }
}

#[test]
fn a_value_that_makes_no_sense_is_named() {
    for (yaml, message) in [
        (
            "risk:\n  cpu:\n    criticalThrottledShare: 1.5\n",
            "risk.cpu.criticalThrottledShare is 1.5; use a number above 0 and at most 1",
        ),
        (
            "risk:\n  cpu:\n    criticalThrottledShare: 0.05\n",
            "risk.cpu.criticalThrottledShare is 0.05; use at least risk.cpu.highThrottledShare (0.1)",
        ),
        (
            "risk:\n  memory:\n    highBelowTarget: 0\n",
            "risk.memory.highBelowTarget is 0; use an amount above 0",
        ),
        ("waste:\n  lowShare: .nan\n", "waste.lowShare is NaN; use a number above 0 and at most 1"),
        (
            "waste:\n  lowShare: 0.4\n",
            "waste.medium.share is 0.3; use at least waste.lowShare (0.4)",
        ),
        ("unsaid:\n  coveredHours: -1\n", "unsaid.coveredHours is -1; use a number from 0 to 8760"),
        ("unsaid:\n  runs: 0\n", "unsaid.runs is 0; use a number above 0"),
        ("change:\n  share: 1\n", "change.share is 1; use a number from 0 to below 1"),
        ("nodeGroups:\n  ratio: .inf\n", "nodeGroups.ratio is inf; use a number of at least 1"),
        (
            "waste:\n  high: {share: 0.5, cpu: 1, memory: 2Gi, monthlyCost: 5}\n",
            "waste.high.monthlyCost is 5; use at least waste.medium.monthlyCost (10)",
        ),
    ] {
        let error = Thresholds::from_yaml(yaml).expect_err(yaml);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn an_unknown_field_or_another_structure_is_one_line() {
    for (yaml, part) in [
        ("risk:\n  cpu:\n    highThrottled: 0.1\n", "highThrottled"),
        ("risk: 5\n", "line 1"),
        ("- a\n", "line 1"),
        ("risk: {memory: {highBelowTarget: much}}\n", "much"),
        ("a: [\n", "line"),
    ] {
        let message = Thresholds::from_yaml(yaml).expect_err(yaml).to_string();
        assert!(message.contains(part), "{message}");
        assert!(message.ends_with("; `--thresholds=default` prints all fields"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let large = "#".repeat(MAX_FILE_BYTES + 1);
    assert_eq!(Thresholds::from_yaml(&large), Err(ThresholdsError::TooLarge(large.len())));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[a-z:{}\\[\\]0-9 \\n&*!-]{0,80}") {
        let _ = Thresholds::from_yaml(&text);
    }

    #[test]
    fn what_is_printed_is_read_back(share in 0.3001..1.0_f64, hours in 0.0..8760.0_f64, millis in 1000..1_000_000_i64) {
        let mut thresholds = Thresholds::default();
        thresholds.waste.high.share = share;
        thresholds.waste.high.cpu = millicores(millis);
        thresholds.unsaid.covered_hours = hours;
        let yaml = thresholds.to_yaml().expect("YAML");
        prop_assert_eq!(Thresholds::from_yaml(&yaml), Ok(thresholds));
    }
}
