//! The statement of where the files of a release come from: in-toto Statement 1 with a SLSA provenance 1 predicate. It is
//! not signed; the publisher signs it.

use serde_json::{Value, json};

/// What a release was built from.
#[derive(Debug)]
pub struct Source {
    /// The repository, `https://...`.
    pub repository: String,
    /// The commit.
    pub commit: String,
    /// The compiler, as `rustc --version` prints it.
    pub compiler: String,
    /// The command of deploy/Dockerfile that builds the program.
    pub command: String,
}

/// The statement about files, each with its SHA-256.
pub fn statement(source: &Source, files: &[(String, String)]) -> Value {
    let subjects: Vec<Value> = files
        .iter()
        .map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}}))
        .collect();
    let Source { repository, commit, compiler, command } = source;
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{repository}/blob/{commit}/docs/releasing.md"),
                "externalParameters": {"commit": commit, "command": command},
                "internalParameters": {"compiler": compiler},
                "resolvedDependencies": [
                    {"uri": format!("git+{repository}@{commit}"), "digest": {"gitCommit": commit}},
                ],
            },
            "runDetails": {"builder": {"id": format!("{repository}/blob/{commit}/docs/releasing.md#builder")}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_subject_with_its_digest() {
        let source = Source {
            repository: "https://example.com/plimsoll".to_owned(),
            commit: "abc".to_owned(),
            compiler: "rustc 1.95.0".to_owned(),
            command: "cargo build".to_owned(),
        };
        let statement = statement(&source, &[("a.tar.gz".to_owned(), "01".to_owned())]);
        assert_eq!(statement["subject"], json!([{"name": "a.tar.gz", "digest": {"sha256": "01"}}]));
        let definition = &statement["predicate"]["buildDefinition"];
        assert_eq!(definition["resolvedDependencies"][0]["digest"]["gitCommit"], "abc");
        assert_eq!(definition["externalParameters"]["command"], "cargo build");
    }
}
