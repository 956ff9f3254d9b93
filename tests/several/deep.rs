//! What all roles in one process take of memory, beside one process each.

use std::{fs, time::Duration};

use super::{ALL, flags, value};
use crate::{
    storage::objects::defined,
    support::{Bed, Usage, fetch::fetch, keeper::State, ours::Ours, wait},
};

/// Resident memory of a process, in MiB.
fn own_memory(bed: &Bed, name: &str) -> f64 {
    let Some(State::Running(id)) = bed.keeper().state(name) else {
        panic!("{name} has ended\n{}", bed.keeper().log_tail(name, 15));
    };
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kibibytes / 1024.0
}

#[tokio::test]
async fn one_process_of_all_roles_takes_less_memory_than_four() {
    let Some(bed) = Bed::private().await else { return };
    defined(&bed).await;
    let _usage = Usage::serve(&bed).await;
    let ours = Ours::on(&bed);
    let ready = async |name: &str, port: u16| {
        let address = format!("http://127.0.0.1:{port}/metrics");
        wait::often(Duration::from_millis(100), wait::PATIENCE, "it serves metrics", || async {
            ours.assert_running(name);
            let page = fetch(&address).await.ok_or(format!("{name} does not answer"))?;
            let page = String::from_utf8_lossy(&page).into_owned();
            let synced = value(&page, "plimsoll_feed_synced{feed=\"replicasets\"}");
            let pods = value(&page, "plimsoll_feed_synced{feed=\"pods\"}");
            if synced.or(pods) == Some(1.0) { Ok(()) } else { Err(format!("{name} reads")) }
        })
        .await;
    };
    let lease = "--leader-elect=false";
    let recommender = ours.start("recommender", &[lease]);
    let updater = ours.updater("updater", &[lease]);
    ours.webhook("webhook", &[]);
    let lock = "--enable-leader-election=false";
    let watermark = ours.watermark("watermark", &[lock]);
    for (name, port) in
        [("recommender", recommender), ("updater", updater), ("watermark", watermark)]
    {
        ready(name, port).await;
    }
    let names = ["recommender", "updater", "webhook", "watermark"];
    let apart: f64 = names.map(|name| own_memory(&bed, name)).iter().sum();
    for name in names {
        bed.keeper().signal(name, "KILL");
    }
    let flags = flags(&[]);
    let flags: Vec<&str> = flags[2..].iter().map(String::as_str).collect();
    let port = ours.together("together", ALL, &[&flags[..], &[lease, lock]].concat());
    ready("together", port).await;
    let together = own_memory(&bed, "together");
    assert!(together < apart / 2.0, "{together:.1} MiB together, {apart:.1} MiB apart");
}
