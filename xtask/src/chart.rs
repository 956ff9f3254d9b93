//! The chart as it is released: its page, its pictures and its image are filled in, and its annotations are checked by the
//! rules of Artifact Hub.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::archive::{self, Entry};

/// The chart, relative to the root of the workspace.
pub const FOLDER: &str = "deploy/helm/plimsoll";

const NAME: &str = "plimsoll";
/// Shown by Artifact Hub, relative to the root of the workspace.
const ICON: &str = "src/ui/assets/icon.svg";
const SCREENSHOTS: [(&str, &str); 3] = [
    ("The web page", "docs/pictures/ui-overview.png"),
    ("Overview of all autoscalers", "docs/pictures/overview.svg"),
    ("Vertical autoscaling of a workload", "docs/pictures/vertical.svg"),
];
/// As Artifact Hub lists them.
const CATEGORIES: [&str; 9] = [
    "ai-machine-learning",
    "database",
    "integration-delivery",
    "monitoring-logging",
    "networking",
    "security",
    "skip-prediction",
    "storage",
    "streaming-messaging",
];
const CAPABILITIES: [&str; 5] =
    ["basic install", "seamless upgrades", "full lifecycle", "deep insights", "auto pilot"];
const KINDS_OF_CHANGES: [&str; 6] =
    ["added", "changed", "deprecated", "removed", "fixed", "security"];

/// Values of a release.
#[derive(Clone, Debug)]
pub struct Release {
    /// The commit, for the addresses of pictures.
    pub commit: String,
    /// Page of the project.
    pub homepage: String,
    /// Repository of the image; `None` leaves the name that users have to replace.
    pub image: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chart {
    version: String,
    app_version: String,
    #[serde(default)]
    home: Option<String>,
    #[serde(default)]
    icon: Option<String>,
    annotations: Annotations,
}

/// Unknown ones are refused: Artifact Hub ignores a name that is misspelt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    #[serde(rename = "artifacthub.io/category")]
    category: String,
    #[serde(rename = "artifacthub.io/license")]
    license: String,
    #[serde(rename = "artifacthub.io/prerelease")]
    prerelease: String,
    #[serde(rename = "artifacthub.io/operator")]
    operator: String,
    #[serde(rename = "artifacthub.io/operatorCapabilities")]
    capabilities: String,
    #[serde(rename = "artifacthub.io/changes")]
    changes: String,
    #[serde(rename = "artifacthub.io/crds")]
    crds: String,
    #[serde(rename = "artifacthub.io/images")]
    images: String,
    #[serde(rename = "artifacthub.io/screenshots", default)]
    screenshots: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    kind: String,
    description: String,
}

/// A definition that the chart installs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Crd {
    /// Kind of its objects.
    pub kind: String,
    /// Their version.
    pub version: String,
    /// Name of the definition.
    pub name: String,
    /// Title of its card.
    pub display_name: String,
    /// Text of its card.
    pub description: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    name: String,
    image: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Screenshot {
    title: String,
    url: String,
}

/// The files of the chart as they are released, with the licence.
pub fn entries(root: &Path, release: &Release) -> Result<Vec<Entry>> {
    let mut entries = archive::entries_below(&root.join(FOLDER), NAME)?;
    for entry in &mut entries {
        let filled_in = match entry.path.strip_prefix("plimsoll/") {
            Some("Chart.yaml") => about(&text(entry)?, release)?,
            Some("values.yaml") => values(&text(entry)?, release)?,
            _ => continue,
        };
        entry.bytes = filled_in.into_bytes();
    }
    entries.push(Entry::of(&root.join("LICENSE"), "plimsoll/LICENSE", false)?);
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

fn text(entry: &Entry) -> Result<String> {
    String::from_utf8(entry.bytes.clone()).with_context(|| entry.path.clone())
}

/// Fills in Chart.yaml.
fn about(text: &str, release: &Release) -> Result<String> {
    let Release { commit, homepage, image } = release;
    let raw = |path: &str| format!("{homepage}/raw/{commit}/{path}");
    let pictures = SCREENSHOTS
        .map(|(title, path)| format!("    - title: {title}\n      url: {}\n", raw(path)))
        .concat();
    let mut text = replaced(
        text,
        "annotations:\n",
        &format!(
            "home: {homepage}\nsources: [{homepage}]\nicon: {}\nannotations:\n  artifacthub.io/screenshots: |\n{pictures}",
            raw(ICON)
        ),
    )?;
    if let Some(image) = image {
        text = replaced(&text, "      image: plimsoll:", &format!("      image: {image}:"))?;
    }
    validate(&text)?;
    let chart: Chart = serde_saphyr::from_str(&text).context("Chart.yaml")?;
    for url in [chart.home, chart.icon].into_iter().flatten() {
        ensure!(is_https(&url), "{url}: start it with https://");
    }
    Ok(text)
}

/// Fills in values.yaml.
fn values(text: &str, release: &Release) -> Result<String> {
    let Some(image) = &release.image else { return Ok(text.to_owned()) };
    replaced(
        text,
        "  # No image is published yet: set the name of the image that you have built.\n  repository: plimsoll\n",
        &format!("  # Name of the image, without its tag.\n  repository: {image}\n"),
    )
}

/// Replaces what has to be there once.
fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    ensure!(text.matches(from).count() == 1, "{FOLDER}: expected {from:?} once");
    Ok(text.replacen(from, to, 1))
}

/// Checks the annotations of a Chart.yaml by the rules of Artifact Hub, and returns the definitions that they list.
pub fn validate(text: &str) -> Result<Vec<Crd>> {
    let chart: Chart = serde_saphyr::from_str(text).context("Chart.yaml")?;
    let Annotations {
        category,
        license,
        prerelease,
        operator,
        capabilities,
        changes,
        crds,
        images,
        screenshots,
    } = &chart.annotations;
    ensure!(CATEGORIES.contains(&&**category), "category {category}: one of {CATEGORIES:?}");
    ensure!(license == "Apache-2.0", "license {license}: the project has another one");
    for value in [prerelease, operator] {
        ensure!(["true", "false"].contains(&&**value), "{value:?}: write \"true\" or \"false\"");
    }
    let is_before_1 = chart.version.starts_with("0.") || chart.version.contains('-');
    ensure!(!is_before_1 || prerelease == "true", "prerelease: version {} is one", chart.version);
    let known = CAPABILITIES.contains(&&*capabilities.to_lowercase());
    ensure!(known, "operatorCapabilities {capabilities}: one of {CAPABILITIES:?}");
    let changes: Vec<Change> = serde_saphyr::from_str(changes).context("changes")?;
    ensure!(!changes.is_empty(), "changes: the list is empty");
    for Change { kind, description } in &changes {
        ensure!(
            KINDS_OF_CHANGES.contains(&&**kind),
            "changes: {kind}: one of {KINDS_OF_CHANGES:?}"
        );
        ensure!(!description.trim().is_empty(), "changes: a description is empty");
    }
    let images: Vec<Image> = serde_saphyr::from_str(images).context("images")?;
    ensure!(!images.is_empty(), "images: the list is empty");
    for Image { name, image } in &images {
        let tag = image.rsplit_once(':').map(|(_, tag)| tag);
        ensure!(!name.is_empty(), "images: {image} has no name");
        let wanted = &chart.app_version;
        ensure!(tag == Some(wanted), "images: {image} does not have the tag {wanted}");
    }
    let screenshots = screenshots.as_deref().map_or(Ok(Vec::new()), serde_saphyr::from_str);
    for Screenshot { title, url } in &screenshots.context("screenshots")? {
        ensure!(is_https(url) && !title.is_empty(), "screenshots: {url}: start it with https://");
    }
    serde_saphyr::from_str(crds).context("crds")
}

fn is_https(url: &str) -> bool {
    url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
    }

    fn release(image: Option<&str>) -> Release {
        Release {
            commit: "0123abcd".to_owned(),
            homepage: "https://example.com/plimsoll".to_owned(),
            image: image.map(str::to_owned),
        }
    }

    fn file(entries: &[Entry], path: &str) -> String {
        let entry = entries.iter().find(|entry| entry.path == path);
        text(entry.unwrap_or_else(|| panic!("no {path}"))).expect("text")
    }

    #[test]
    fn a_released_chart_names_its_image_page_and_pictures() {
        let entries = entries(root(), &release(Some("ghcr.io/me/plimsoll"))).expect("a chart");
        assert!(entries.is_sorted_by_key(|entry| &entry.path));
        let about = file(&entries, "plimsoll/Chart.yaml");
        for wanted in [
            "\nhome: https://example.com/plimsoll\n",
            "\n      image: ghcr.io/me/plimsoll:",
            "/plimsoll/raw/0123abcd/docs/pictures/overview.svg\n",
        ] {
            assert!(about.contains(wanted), "{wanted}: {about}");
        }
        let values = file(&entries, "plimsoll/values.yaml");
        assert!(values.contains("\n  repository: ghcr.io/me/plimsoll\n"), "{values}");
        assert!(!values.contains("No image is published"), "{values}");
        assert!(file(&entries, "plimsoll/LICENSE").contains("Apache License"));
        for path in SCREENSHOTS.map(|(_, path)| path).iter().chain([&ICON]) {
            assert!(root().join(path).exists(), "{path}");
        }
    }

    #[test]
    fn without_an_image_users_are_told_to_set_one() {
        let entries = entries(root(), &release(None)).expect("a chart");
        let shipped = fs::read_to_string(root().join(FOLDER).join("values.yaml")).expect("values");
        assert_eq!(file(&entries, "plimsoll/values.yaml"), shipped);
        assert!(file(&entries, "plimsoll/Chart.yaml").contains("      image: plimsoll:"));
    }

    #[test]
    fn a_chart_with_another_address_than_https_is_refused() {
        let release = Release { homepage: "http://example.com".to_owned(), ..release(None) };
        let why = entries(root(), &release).expect_err("not https").to_string();
        assert!(why.contains("start it with https://"), "{why}");
    }

    #[test]
    fn annotations_that_artifact_hub_refuses_are_named() {
        let shipped = fs::read_to_string(root().join(FOLDER).join("Chart.yaml")).expect("a chart");
        validate(&shipped).expect("valid");
        for (from, to, word) in [
            ("category: monitoring-logging", "category: autoscaling", "category autoscaling"),
            ("license: Apache-2.0", "license: MIT", "license MIT"),
            ("prerelease: \"true\"", "prerelease: \"yes\"", "\"yes\""),
            ("prerelease: \"true\"", "prerelease: \"false\"", "version 0."),
            ("Auto Pilot", "Autopilot", "operatorCapabilities Autopilot"),
            ("kind: added", "kind: new", "changes: new"),
            ("image: plimsoll:", "image: plimsoll:1", "does not have the tag"),
            ("displayName: VerticalPodAutoscaler\n", "title: VerticalPodAutoscaler\n", "crds"),
            ("artifacthub.io/operator:", "artifacthub.io/isOperator:", "Chart.yaml"),
        ] {
            assert!(shipped.contains(from), "{from}");
            let why = validate(&shipped.replacen(from, to, 1)).expect_err(to);
            assert!(format!("{why:#}").contains(word), "{to}: {why:#}");
        }
    }

    #[test]
    fn the_annotations_list_the_definitions_of_the_chart() {
        let shipped = fs::read_to_string(root().join(FOLDER).join("Chart.yaml")).expect("a chart");
        let mut listed: Vec<String> =
            validate(&shipped).expect("valid").into_iter().map(|crd| crd.name + ".yaml").collect();
        let files = fs::read_dir(root().join(FOLDER).join("crds")).expect("a folder").flatten();
        let mut files: Vec<String> =
            files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        files.sort();
        listed.sort();
        assert_eq!(listed, files);
    }
}
