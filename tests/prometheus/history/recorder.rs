//! A way to a server on which every question is written down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use plimsoll_storage::prometheus::door::{DoorError, Response, Transport};

use crate::prometheus::gather::door;

/// A question only VictoriaMetrics has an answer to.
pub const OF_VICTORIA: &str = "vector(1) default 2";

/// Passes questions on, and keeps them.
#[derive(Debug)]
pub struct Recorder {
    door: Arc<dyn Transport>,
    asked: Mutex<Vec<Asked>>,
    poses: AtomicBool,
}

/// A question.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub form: Vec<(String, String)>,
}

impl Recorder {
    /// To this server.
    pub fn before(url: &str) -> Arc<Self> {
        let (asked, poses) = (Mutex::default(), AtomicBool::default());
        Arc::new(Self { door: door(url), asked, poses })
    }

    /// Lets it pass for a VictoriaMetrics.
    pub fn pose(&self) {
        self.poses.store(true, Ordering::SeqCst);
    }

    /// Everything that was asked since the last time.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }

    /// The queries and selectors among it.
    pub fn questions(&self) -> Vec<String> {
        let all = self.take().into_iter().flat_map(|asked| asked.form);
        let is_one = |name: &str| matches!(name, "query" | "match[]");
        all.filter(|(name, _)| is_one(name)).map(|(_, text)| text).collect()
    }
}

#[async_trait]
impl Transport for Recorder {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, DoorError> {
        let kept = form.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
        let asked = Asked { path: path.to_owned(), form: kept };
        self.asked.lock().expect("no panic").push(asked);
        let mut form = form.to_vec();
        if self.poses.load(Ordering::SeqCst) {
            for (_, text) in form.iter_mut().filter(|(_, text)| text == OF_VICTORIA) {
                "vector(1)".clone_into(text);
            }
        }
        self.door.send(path, &form, timeout).await
    }
}
