//! A scripted day of one cluster, lived by the real roles on a stepped clock: what they tell on the way becomes the data of
//! a real Prometheus, for every board and every alert.

mod record;
mod script;
mod stage;

use xtask::{
    parts::Release,
    pictures::{self, Options, Picture},
};

use self::{record::Record, script::live};
use crate::support::prometheus::Prometheus;

/// All boards, drawn with what this server knows.
async fn drawn(server: &Prometheus, at: String) -> Vec<Picture> {
    let url = server.url();
    let draw = move || -> anyhow::Result<Vec<Picture>> {
        let server = pictures::Prometheus::at(&url)?;
        let options = Options { at: Some(at), range: None, set: Vec::new() };
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let boards = pictures::boards(root, &[])?;
        let drawn =
            boards.iter().map(|(name, board)| pictures::draw(name, board, &server, &options));
        drawn.collect()
    };
    tokio::task::spawn_blocking(draw).await.expect("no panic").expect("all are drawn")
}

#[tokio::test]
async fn every_panel_but_those_that_are_awaited_has_data_of_a_day_that_the_real_roles_have_lived() {
    let Some(day) = live().await else { return };
    let end = day.end();
    let Some(server) = Prometheus::with_history(Release::Three, day.history()).await else {
        return;
    };
    let pictures = drawn(&server, end.to_string()).await;
    if let Ok(folder) = std::env::var("PLIMSOLL_PICTURES") {
        for picture in &pictures {
            let path = std::path::Path::new(&folder).join(format!("{}.svg", picture.board));
            std::fs::write(path, &picture.svg).expect("it is written");
        }
    }
    let mut empty = std::collections::BTreeSet::new();
    for picture in &pictures {
        empty.extend(picture.empty().map(|panel| format!("{}: {}", picture.board, panel.0)));
    }
    let awaited = AWAITED.map(str::to_owned).into();
    assert_eq!(empty, awaited, "no data");
}

/// Panels of what does not happen yet on that day: nothing is evicted, and so no pod is reviewed. The list is to be empty.
const AWAITED: [&str; 5] = [
    "controller: Reviews by outcome",
    "controller: Time of an answer",
    "overview: Watermark: replicas that would be others",
    "vertical: Evictions",
    "vertical: Resizes",
];

/// The whole of it, as it was lived.
type Day = Record;
