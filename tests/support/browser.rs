//! Chromium without windows, driven through two pipes: it loads a page, reports what the page does, and evaluates
//! expressions in it.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use xtask::test_programs::Chromium;

use super::wait::PATIENCE;

/// Chromium reads commands from descriptor 3 and writes to descriptor 4.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1"#;

/// A browser with one page.
pub struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last_command: u64,
    session: String,
    events: Vec<Value>,
    _profile: TempDir,
}

// === impl Browser ===

impl Browser {
    /// Starts it with an empty page. No name resolves, so no request leaves the machine.
    pub fn start(chromium: Chromium) -> Self {
        let profile = tempfile::tempdir().expect("a temporary folder");
        let mut process = Command::new("sh")
            .args(["-c", START])
            .arg(&chromium.program)
            // The pages are our own, and its sandbox needs rights that containers do not have.
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("LD_LIBRARY_PATH", env::join_paths(chromium.libraries).expect("no colons"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            commands: process.stdin.take().expect("a pipe"),
            process,
            messages,
            last_command: 0,
            session: String::new(),
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach);
        attached["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Sends a command and returns its result.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_command += 1;
        let mut command = json!({"id": self.last_command, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        write!(self.commands, "{command}\0").expect("the browser runs");
        loop {
            let message = self.next_message(method);
            if message["id"] == self.last_command {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn next_message(&self, awaited: &str) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        message.unwrap_or_else(|error| panic!("waiting for {awaited}: {error}"))
    }

    /// Sets the width of the window, the color scheme, and whether scripts run.
    pub fn set(&mut self, width: u32, scheme: &str, scripts: bool) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"features": features}));
        self.call("Emulation.setScriptExecutionDisabled", &json!({"value": !scripts}));
    }

    /// Loads a page, and returns the events until it has loaded.
    pub fn open(&mut self, url: &str) -> Vec<Value> {
        self.events.clear();
        self.call("Page.navigate", &json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next_message("the page to load");
            self.events.push(event);
        }
        self.events.clone()
    }

    /// The value of an expression in the page; a promise is awaited.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The events since the page was opened.
    pub fn events(&self) -> &[Value] {
        &self.events
    }

    /// The whole page as PNG, at most 6000 pixels high.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let metrics = self.call("Page.getLayoutMetrics", &json!({}));
        let size = &metrics["cssContentSize"];
        let height = size["height"].as_f64().expect("a height").min(6000.0);
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = self.call("Page.captureScreenshot", &parameters);
        BASE64_STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("Base64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
