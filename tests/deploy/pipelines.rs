//! The script, the action and the template for pipelines in deploy/ci, run as the services run them.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{ROOT, documents};

/// Stands in for the program: it writes the files that it is asked for, notes its arguments, and exits as it is told.
const PROGRAM: &str = r#"#!/bin/sh
echo "$@" >>"$NOTES"
[ -z "${FAILS_EARLY:-}" ] || exit "$FAILS_EARLY"
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then
        case $2 in
        markdown=*) printf '%s\n' "${MARKDOWN:-# Report}" >"${2#*=}" ;;
        *=*) echo '{}' >"${2#*=}" ;;
        esac
        shift
    fi
    shift
done
[ -n "${NO_CHANGE:-}" ] || echo "+cpu: 200m"
exit "${CODE:-0}"
"#;

struct Pipeline {
    folder: TempDir,
    variables: BTreeMap<String, String>,
}

impl Pipeline {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pipeline = Self { folder, variables: BTreeMap::new() };
        pipeline.program("plimsoll", PROGRAM);
        pipeline.program("gh", "#!/bin/sh\necho \"gh $@\" >>\"$NOTES\"\n");
        let path = format!("{}:/usr/bin:/bin", pipeline.path("bin").display());
        pipeline.set("PATH", &path);
        for (name, file) in [
            ("NOTES", "notes"),
            ("OUT", "out"),
            ("GITHUB_OUTPUT", "outputs"),
            ("GITHUB_STEP_SUMMARY", "summary"),
        ] {
            let path = pipeline.path(file).display().to_string();
            pipeline.set(name, &path);
        }
        pipeline.set("PLIMSOLL", "plimsoll");
        pipeline
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    fn program(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path("bin").join(name);
        fs::create_dir_all(self.path("bin")).expect("a folder");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    fn shell(&self, script: &str) -> Output {
        Command::new("sh")
            .args(["-c", script])
            .current_dir(self.folder.path())
            .env_clear()
            .envs(&self.variables)
            .output()
            .expect("a shell")
    }

    fn recommend(&self) -> (Option<i32>, String) {
        let output = self.shell(&format!("sh {}", ci("recommend.sh").display()));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Replaces the program on PATH by an archive of it, with this digest or its own.
    fn download(&mut self, digest: Option<&str>) {
        let archive = self.path("plimsoll-linux-amd64.tar.gz");
        let packed = self.shell(&format!("tar -czf {} -C bin plimsoll", archive.display()));
        assert!(packed.status.success(), "{packed:?}");
        fs::remove_file(self.path("bin/plimsoll")).expect("removed");
        let own = self.shell(&format!("sha256sum {}", archive.display())).stdout;
        let own = String::from_utf8(own).expect("text");
        self.set("PLIMSOLL", "");
        self.set("PLIMSOLL_URL", &format!("file://{}", archive.display()));
        self.set("PLIMSOLL_SHA256", digest.unwrap_or(&own));
    }
}

fn ci(name: &str) -> PathBuf {
    Path::new(ROOT).join("deploy/ci").join(name)
}

#[test]
fn the_script_writes_all_results_and_exits_as_the_program() {
    let mut pipeline = Pipeline::new();
    pipeline.set("MANIFESTS", "deploy charts/values.yaml");
    pipeline.set("ARGUMENTS", "--fail-on=change -n shop");
    for code in [0, 1, 4] {
        pipeline.set("CODE", &code.to_string());
        assert_eq!(pipeline.recommend(), (Some(code), String::new()));
    }
    let notes = pipeline.read("notes");
    let line = notes.lines().next().expect("it was called");
    assert!(line.starts_with("recommend --diff deploy charts/values.yaml -o markdown="), "{line}");
    assert!(line.ends_with("--fail-on=change -n shop"), "{line}");
    let report = pipeline.read("out/report.md");
    assert!(report.starts_with("# Report\n") && report.contains("+cpu: 200m\n````"), "{report}");
    assert_eq!(pipeline.read("out/changes.diff"), "+cpu: 200m\n");
    for form in ["sarif", "json"] {
        assert_eq!(pipeline.read(&format!("out/report.{form}")), "{}\n");
    }
    pipeline.set("NO_CHANGE", "1");
    pipeline.recommend();
    assert_eq!(pipeline.read("out/report.md"), "# Report\n", "nothing to show");
}

#[test]
fn a_program_that_writes_no_report_fails_the_job() {
    let mut pipeline = Pipeline::new();
    for (program, job) in [("2", 2), ("0", 3)] {
        pipeline.set("FAILS_EARLY", program);
        let (code, errors) = pipeline.recommend();
        assert_eq!(code, Some(job), "{errors}");
        assert!(errors.contains("wrote no report"), "{errors}");
    }
}

#[test]
fn a_long_report_is_cut_at_the_end_of_a_line_and_says_so() {
    let mut pipeline = Pipeline::new();
    let rows: Vec<String> = (0..200).map(|row| format!("| shop/web-{row} | 100m |")).collect();
    pipeline.set("MARKDOWN", &rows.join("\n"));
    pipeline.set("MAX_COMMENT_BYTES", "2000");
    assert_eq!(pipeline.recommend().0, Some(0));
    let report = pipeline.read("out/report.md");
    assert!(report.len() <= 2000, "{}", report.len());
    let (table, note) = report.split_once("\n\n").expect("a note");
    assert!(table.lines().all(|line| line.ends_with("100m |")), "{table}");
    assert!(note.contains("is cut"), "{note}");
    let whole = pipeline.read("out/report-whole.md");
    assert!(whole.contains("web-199") && whole.contains("changes.diff"), "{whole}");
}

#[test]
fn a_download_runs_only_with_its_digest() {
    let mut pipeline = Pipeline::new();
    pipeline.download(None);
    assert_eq!(pipeline.recommend(), (Some(0), String::new()));
    assert!(pipeline.read("out/report.md").starts_with("# Report"));

    let mut pipeline = Pipeline::new();
    pipeline.download(Some(&"0".repeat(64)));
    let (code, errors) = pipeline.recommend();
    assert_ne!(code, Some(0), "{errors}");
    assert!(pipeline.read("notes").is_empty(), "the program was run: {errors}");
    pipeline.set("PLIMSOLL_SHA256", "");
    assert!(pipeline.recommend().1.contains("not run without it"));
}

/// Fills in the expressions of the action.
fn evaluate(text: &str, pipeline: &Pipeline) -> String {
    let value = |expression: &str| match expression {
        "inputs.url == '' && 'plimsoll' || ''" => "plimsoll".to_owned(),
        "inputs.url" | "inputs.sha256" => String::new(),
        "inputs.manifests" => "deploy/".to_owned(),
        "inputs.arguments" => "--fail-on=change".to_owned(),
        "runner.temp" => pipeline.folder.path().display().to_string(),
        "github.action_path" => ci("").display().to_string(),
        "github.token" => "secret".to_owned(),
        "github.repository" => "owner/shop".to_owned(),
        "github.event.number" => "7".to_owned(),
        output => {
            let name = output.strip_prefix("steps.recommend.outputs.");
            let name = name.unwrap_or_else(|| panic!("no value for {output}"));
            let outputs = pipeline.read("outputs");
            let line = outputs.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            line.expect("the step has set it").to_owned()
        }
    };
    let mut rest = text;
    let mut filled = String::new();
    while let Some((before, after)) = rest.split_once("${{") {
        let (expression, after) = after.split_once("}}").expect("it is closed");
        filled += before;
        filled += &value(expression.trim());
        rest = after;
    }
    filled + rest
}

#[test]
fn the_action_comments_on_the_pull_request_and_ends_with_the_exit_code() {
    let action = documents(&ci("action.yml")).remove(0);
    let mut pipeline = Pipeline::new();
    pipeline.set("CODE", "1");
    let mut codes = Vec::new();
    for step in action["runs"]["steps"].as_array().expect("steps") {
        let Some(script) = step["run"].as_str() else { continue };
        assert_eq!(step["shell"], "sh");
        assert!(!script.contains("${{"), "values reach scripts by variables only: {script}");
        let before = pipeline.variables.clone();
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            let value = evaluate(value.as_str().expect("text"), &pipeline);
            pipeline.set(name, &value);
        }
        // As GitHub runs `shell: sh`.
        let output = pipeline.shell(&format!("set -e\n{script}"));
        codes.push((step["id"].as_str().expect("an id"), output.status.code()));
        pipeline.variables = before;
    }
    assert_eq!(codes, [("recommend", Some(0)), ("comment", Some(0)), ("verdict", Some(1))]);
    let report = pipeline.path("plimsoll-report/report.md").display().to_string();
    let notes = pipeline.read("notes");
    let comment = format!("gh pr comment 7 --edit-last --create-if-none --body-file {report}");
    assert!(notes.lines().any(|line| line == comment), "{notes}");
    assert!(pipeline.read("summary").starts_with("# Report"));
    let upload = &action["runs"]["steps"][2]["with"]["sarif_file"];
    let sarif = evaluate(upload.as_str().expect("a path"), &pipeline);
    assert!(Path::new(&sarif).exists(), "{sarif}");
}

#[test]
fn the_template_posts_a_note_and_ends_with_the_exit_code() {
    let template = documents(&ci("gitlab.yml")).remove(0);
    let job = &template[".plimsoll-recommend"];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let request = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a request");
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        reader.get_mut().write_all(answer.as_bytes()).expect("is sent");
        (head, String::from_utf8(body).expect("UTF-8"))
    });
    let mut pipeline = Pipeline::new();
    for (name, value) in job["variables"].as_object().expect("variables") {
        if name != "OUT" {
            pipeline.set(name, value.as_str().expect("text"));
        }
    }
    pipeline.set("CODE", "4");
    pipeline.set("PLIMSOLL_SCRIPT", &format!("file://{}", ci("recommend.sh").display()));
    pipeline.set("PLIMSOLL_TOKEN", "secret");
    pipeline.set("CI_API_V4_URL", &format!("http://{address}"));
    pipeline.set("CI_PROJECT_ID", "3");
    pipeline.set("CI_MERGE_REQUEST_IID", "7");
    let script: Vec<&str> =
        job["script"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let output = pipeline.shell(&script.join("\n"));
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let (head, body) = request.join().expect("no panic");
    assert!(head.starts_with("POST /projects/3/merge_requests/7/notes "), "{head}");
    assert!(head.contains("PRIVATE-TOKEN: secret"), "{head}");
    assert!(body.starts_with("body=%23%20Report") || body.starts_with("body=%23+Report"), "{body}");
}
