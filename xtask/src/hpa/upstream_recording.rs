//! Runs upstream's controller on scenarios and records the result for the gate.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use plimsoll_core::hpa::Fixes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::{Difference, compare};
use super::generate::scenario;
use super::replay::play_scenario;
use super::scenario::Scenario;
use crate::test_programs;

/// Path of the recording, relative to the workspace.
pub const RECORDING: &str = "tests/golden/hpa/upstream-1.36.3.jsonl.gz";

/// Objects, one per line, with the API server's validation errors.
pub const VALIDATION: &str = "tests/golden/hpa/validation-1.36.3.jsonl";

/// Seed and number of the recorded scenarios.
const RECORDED: (u64, usize) = (20_261_127, 150);

/// Generates the scenarios of a seed.
pub fn scenarios(seed: u64, count: usize) -> Result<Vec<Scenario>> {
    (0..count).map(|index| scenario(seed, index)).collect()
}

/// Runs upstream's controller on scenarios; returns the passes of each, in order.
pub fn upstream(scenarios: &[Scenario]) -> Result<Vec<Vec<Value>>> {
    group(scenarios, &oracle("run", lines(scenarios)?)?)
}

/// Pipes lines through upstream's program.
fn oracle(command: &str, lines: String) -> Result<String> {
    let program = match std::env::var_os("HPA_ORACLE") {
        Some(path) => PathBuf::from(path),
        None => test_programs::hpa_oracle()?,
    };
    let mut child = Command::new(&program)
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {}", program.display()))?;
    let mut input = child.stdin.take().context("the child has no stdin")?;
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{} failed", program.display());
    writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    Ok(String::from_utf8(output.stdout)?)
}

/// Records the API server's validation errors of the recorded objects again.
fn record_validation(root: &Path) -> Result<()> {
    let path = root.join(VALIDATION);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut cases: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let objects: String = cases.iter().map(|case| case["hpa"].to_string() + "\n").collect();
    let verdicts = oracle("check", objects)?;
    let mut recorded = String::new();
    for (case, verdict) in cases.iter_mut().zip(verdicts.lines()) {
        let mut verdict: Value = serde_json::from_str(verdict)?;
        let mut details: Vec<String> = serde_json::from_value(verdict["details"].take())?;
        details.sort();
        case["refused"] = verdict["refused"].take();
        case["details"] = details.into();
        recorded += &case.to_string();
        recorded.push('\n');
    }
    std::fs::write(&path, recorded)?;
    Ok(())
}

/// Serializes scenarios, one per line.
pub fn lines(scenarios: &[Scenario]) -> Result<String> {
    let mut text = String::new();
    for scenario in scenarios {
        text += &serde_json::to_string(scenario)?;
        text.push('\n');
    }
    Ok(text)
}

/// Runs our controller on a scenario.
pub fn ours(scenario: &Scenario) -> Result<Vec<Value>> {
    let passes = play_scenario(scenario, Fixes::UPSTREAM)?;
    passes.iter().map(|pass| Ok(serde_json::to_value(pass)?)).collect()
}

fn group(scenarios: &[Scenario], passes: &str) -> Result<Vec<Vec<Value>>> {
    let mut groups = vec![Vec::new(); scenarios.len()];
    let mut index = 0;
    for line in passes.lines() {
        let pass: Value = serde_json::from_str(line)?;
        while index < scenarios.len() && pass["id"].as_str() != Some(&scenarios[index].id) {
            index += 1;
        }
        groups.get_mut(index).context("a pass belongs to no scenario")?.push(pass);
    }
    Ok(groups)
}

/// All differing fields of the scenarios of a seed, and the number of passes.
pub fn differences(seed: u64, count: usize) -> Result<(Vec<Difference>, usize)> {
    let scenarios = scenarios(seed, count)?;
    let upstream = upstream(&scenarios)?;
    let mut found = Vec::new();
    for (scenario, upstream) in scenarios.iter().zip(&upstream) {
        found.extend(compare(&ours(scenario)?, upstream));
    }
    Ok((found, upstream.iter().map(Vec::len).sum()))
}

/// How often each field differs, with an example.
pub fn summary(found: &[Difference]) -> Vec<String> {
    let mut paths: BTreeMap<&str, (usize, &Difference)> = BTreeMap::new();
    for one in found {
        paths.entry(&one.path).or_insert((0, one)).0 += 1;
    }
    let line = |(path, (count, first)): (&str, (usize, &Difference))| {
        format!(
            "{count:>6} {path}: in {}\n         ours     {}\n         upstream {}",
            first.pass, first.ours, first.upstream
        )
    };
    paths.into_iter().map(line).collect()
}

/// Records upstream's passes on the scenarios of the gate.
pub fn record(root: &Path) -> Result<PathBuf> {
    let (seed, count) = RECORDED;
    let scenarios = scenarios(seed, count)?;
    let passes = upstream(&scenarios)?;
    let header = json!({"upstream": "k8s.io/kubernetes v1.36.3", "seed": seed, "scenarios": count});
    let mut text = format!("{header}\n");
    for (scenario, passes) in scenarios.iter().zip(passes) {
        text += &json!({"scenario": scenario, "passes": passes}).to_string();
        text.push('\n');
    }
    let path = root.join(RECORDING);
    std::fs::create_dir_all(path.parent().context("a folder")?)?;
    let mut file = GzEncoder::new(std::fs::File::create(&path)?, Compression::best());
    file.write_all(text.as_bytes())?;
    file.finish()?;
    record_validation(root)?;
    Ok(path)
}

/// Reads the recording.
pub fn recording(root: &Path) -> Result<String> {
    let path = root.join(RECORDING);
    let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text)?;
    Ok(text)
}

/// Replays a recording; returns all differing fields and the number of passes.
pub fn replay_recording(text: &str) -> Result<(Vec<Difference>, usize)> {
    let (seed, _) = RECORDED;
    let mut found = Vec::new();
    let mut count = 0;
    for (index, line) in text.lines().skip(1).enumerate() {
        let recorded: Recorded = serde_json::from_str(line)?;
        let drawn = serde_json::to_string(&scenario(seed, index)?)?;
        ensure!(
            serde_json::to_string(&recorded.scenario)? == drawn,
            "scenario {index} differs from the recorded one: run cargo xtask hpa-record"
        );
        count += recorded.passes.len();
        found.extend(compare(&ours(&recorded.scenario)?, &recorded.passes));
    }
    Ok((found, count))
}

/// A line of the recording.
#[derive(Deserialize)]
struct Recorded {
    scenario: Scenario,
    passes: Vec<Value>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerSpec;
    use plimsoll_core::hpa::{defaults, validation::validate};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn decisions_equal_the_recording_of_upstream() {
        let text = recording(&root()).expect("a recording");
        let header: Value =
            serde_json::from_str(text.lines().next().expect("a header")).expect("JSON");
        let (seed, count) = RECORDED;
        assert_eq!(
            header,
            json!({"upstream": "k8s.io/kubernetes v1.36.3", "seed": seed, "scenarios": count})
        );
        let (found, passes) = replay_recording(&text).expect("scenarios");
        assert!(found.is_empty(), "\n{}", summary(&found).join("\n"));
        assert!(passes > 1500, "only {passes} passes are recorded");
    }

    #[test]
    fn objects_are_rejected_as_the_api_server_rejects_them() {
        let text = std::fs::read_to_string(root().join(VALIDATION)).expect("a recording");
        let mut count = 0;
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).expect("JSON");
            let mut spec: HorizontalPodAutoscalerSpec =
                serde_json::from_value(case["hpa"]["spec"].clone()).expect("a spec");
            defaults::complete(&mut spec);
            let found = validate(&spec, false);
            let mut refused: Vec<_> =
                found.iter().map(|one| format!("{}: {}", one.field, one.kind)).collect();
            let mut details: Vec<_> = found.iter().map(ToString::to_string).collect();
            refused.sort();
            details.sort();
            assert_eq!(json!(refused), case["refused"], "{}", case["name"]);
            assert_eq!(json!(details), case["details"], "{}", case["name"]);
            count += 1;
        }
        assert!(count > 80, "only {count} objects are recorded");
    }

    mod deep {
        use super::*;

        #[test]
        fn random_scenarios_are_decided_as_upstream_decides_them() {
            let seed = std::env::var("PLIMSOLL_SEED").ok().and_then(|seed| seed.parse().ok());
            let (found, passes) =
                differences(seed.unwrap_or(1), 3000).expect("upstream's controller");
            assert!(found.is_empty(), "\n{}", summary(&found).join("\n"));
            assert!(passes > 30_000, "only {passes} passes");
        }
    }
}
