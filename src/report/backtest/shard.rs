//! Accounts of a part of the workloads, as a file, and the merge of all parts.
//!
//! Accounts are sums by workload, so a report that is made of merged files equals that of one process.

use std::{
    fmt,
    io::{self, BufReader, Read, Write},
    path::Path,
    str::FromStr,
};

use plimsoll_core::{
    backtest::{ReportInputs, account::WorkloadAccount},
    rightsizing::survey::{Unread, Workload},
};
use serde::{Deserialize, Serialize};

pub const FILE_VERSION: u32 = 1;
const FILE_KIND: &str = "backtest-accounts";
/// The maximum of shards.
const MAX_SHARDS: u32 = 1_000;
/// The largest file.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// A part of all workloads: `--shard 1/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

/// An invalid `--shard`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "give a number from 0 and how many shards there are, such as 0/4 for the first of four (at most 1000)"
)]
pub struct InvalidShard;

impl FromStr for Shard {
    type Err = InvalidShard;

    fn from_str(text: &str) -> Result<Self, InvalidShard> {
        let (index, count) = text.split_once('/').ok_or(InvalidShard)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| InvalidShard);
        let (index, count) = (number(index)?, number(count)?);
        let is_valid = index < count && count <= MAX_SHARDS;
        is_valid.then_some(Self { index, count }).ok_or(InvalidShard)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl Shard {
    /// Whether it contains a workload. The name decides, so that a workload that is created between the starts of two
    /// processes is in one shard at most and changes none of the others.
    pub fn contains(self, workload: &Workload) -> bool {
        let cluster = workload.cluster.as_deref().unwrap_or_default();
        let parts = [cluster, &workload.namespace, &workload.kind, &workload.name];
        // FNV-1a: the same on every release and machine.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // The lowest bits alone are not mixed well.
        (hash ^ (hash >> 32)) % u64::from(self.count) == u64::from(self.index)
    }
}

/// What was replayed by one process or by all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountsFile {
    pub schema_version: u32,
    pub kind: String,
    /// The index of the shard and their number.
    pub shard: Option<[u32; 2]>,
    /// What the report needs beside the accounts.
    pub inputs: ReportInputs,
    /// The number of workloads without any sample in this time.
    pub without_samples: u64,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// The accounts, sorted by workload.
    pub accounts: Vec<WorkloadAccount>,
}

/// Why files cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A file is not one of accounts.
    #[error("{file}: not a file of `plimsoll backtest --shard`: {why}")]
    Invalid {
        file: String,
        /// What is wrong.
        why: String,
    },
    /// Two files are of different backtests.
    #[error(
        "{first} and {other} are of different backtests: {what} differs; run all shards with the same flags, --until among them"
    )]
    Different {
        /// The first file.
        first: String,
        /// The other file.
        other: String,
        /// What differs.
        what: &'static str,
    },
    /// A shard is given twice or is missing.
    #[error("{0}")]
    Incomplete(String),
}

impl AccountsFile {
    pub fn kind() -> String {
        FILE_KIND.to_owned()
    }

    /// Writes the file as JSON: one line, since only this program reads it. Not as a text in memory, which would be larger
    /// than the accounts.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Reads and parses a file of this name.
    pub fn read(name: &Path, file: impl Read) -> Result<Self, MergeError> {
        let invalid = |why: String| MergeError::Invalid { file: name.display().to_string(), why };
        let parsed: Self = serde_json::from_reader(BufReader::new(file))
            .map_err(|error| invalid(error.to_string()))?;
        if parsed.kind != FILE_KIND {
            return Err(invalid(format!("its kind is {:?}", parsed.kind)));
        }
        if parsed.schema_version != FILE_VERSION {
            let why = format!("version {} instead of {FILE_VERSION}", parsed.schema_version);
            return Err(invalid(why));
        }
        let count = parsed.inputs.policies.len();
        let mut accounts = parsed.accounts.iter();
        if let Some(account) = accounts.find(|account| account.policies.len() != count) {
            return Err(invalid(format!("{} has not {count} policies", account.name)));
        }
        Ok(parsed)
    }

    fn difference(&self, other: &Self) -> Option<&'static str> {
        let (one, two) = (&self.inputs, &other.inputs);
        let checks = [
            // Another version may count differently.
            ("the version of plimsoll", one.version == two.version),
            ("the scope", one.scope == two.scope),
            (
                "the time",
                (one.warm_up_from, one.from, one.until) == (two.warm_up_from, two.from, two.until),
            ),
            ("the list of policies", one.policies == two.policies),
            ("--hpa", one.replicas == two.replicas),
            (
                "the prices",
                (&one.currency, one.cpu_core_hour, one.memory_gib_hour)
                    == (&two.currency, two.cpu_core_hour, two.memory_gib_hour),
            ),
            (
                "the number of shards",
                self.shard.map(|[_, count]| count) == other.shard.map(|[_, count]| count),
            ),
        ];
        checks.into_iter().find(|(_, is_equal)| !is_equal).map(|(what, _)| what)
    }

    /// Merges all shards of a backtest. The result does not depend on the order of the files.
    pub fn merge(mut files: Vec<(String, Self)>) -> Result<Self, MergeError> {
        files.sort_by_key(|(_, file)| file.shard);
        let mut rest = files.into_iter();
        let Some((first, mut all)) = rest.next() else {
            return Err(MergeError::Incomplete("give the files of all shards".to_owned()));
        };
        let mut shards = vec![all.shard];
        for (name, mut file) in rest {
            if let Some(what) = all.difference(&file) {
                return Err(MergeError::Different { first, other: name, what });
            }
            if shards.last() == Some(&file.shard) {
                let [index, count] = file.shard.unwrap_or_default();
                let why = format!("{name}: shard {index}/{count} is given twice");
                return Err(MergeError::Incomplete(why));
            }
            shards.push(file.shard);
            all.without_samples += file.without_samples;
            all.accounts.append(&mut file.accounts);
            all.inputs.remarks.append(&mut file.inputs.remarks);
            all.unread.append(&mut file.unread);
        }
        if let Some([_, count]) = all.shard {
            let is_there = |index: &u32| shards.contains(&Some([*index, count]));
            if let Some(missing) = (0..count).find(|index| !is_there(index)) {
                let why =
                    format!("shard {missing}/{count} is missing: the figures would be of a part");
                return Err(MergeError::Incomplete(why));
            }
        }
        all.shard = None;
        all.sort();
        Ok(all)
    }

    /// What the report needs beside the accounts, with a remark on workloads that have no samples.
    pub fn report_inputs(&self) -> ReportInputs {
        let mut inputs = self.inputs.clone();
        if self.without_samples > 0 {
            let remark = format!("{} workloads have no samples in this time", self.without_samples);
            inputs.remarks.push(remark);
        }
        inputs
    }

    /// Sorts what came from several workloads or processes.
    pub fn sort(&mut self) {
        let key = |of: &WorkloadAccount| {
            (of.cluster.clone(), of.namespace.clone(), of.kind.clone(), of.name.clone())
        };
        self.accounts.sort_by_cached_key(key);
        self.inputs.remarks.sort();
        self.inputs.remarks.dedup();
        self.unread.sort_by(|one, other| (&one.what, &one.why).cmp(&(&other.what, &other.why)));
        self.unread.dedup();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        backtest::{Policy, PolicyRule, ReplicaRule, ReplicaSource, account::PolicyAccount},
        types::Time,
    };

    use super::*;

    fn json(file: &AccountsFile) -> String {
        let mut json = Vec::new();
        file.write_json(&mut json).expect("a Vec can be written");
        String::from_utf8(json).expect("UTF-8")
    }

    fn file(shard: Option<[u32; 2]>, names: &[&str]) -> AccountsFile {
        let account = |name: &&str| WorkloadAccount {
            cluster: None,
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: (**name).into(),
            containers: vec!["main".into()],
            elastic_containers: 0,
            unknown_requests: 0,
            missing_minutes: 0,
            sampled_minutes: 10,
            replicas: ReplicaSource::Recorded,
            policies: vec![PolicyAccount { policy: "vpa".into(), ..PolicyAccount::default() }],
        };
        AccountsFile {
            schema_version: FILE_VERSION,
            kind: FILE_KIND.to_owned(),
            shard,
            inputs: ReportInputs {
                version: "1".to_owned(),
                scope: "shop".to_owned(),
                warm_up_from: Time::from_secs(0),
                from: Time::from_secs(300),
                until: Time::from_secs(600),
                policies: vec![Policy::new(PolicyRule::Vpa).label()],
                currency: None,
                cpu_core_hour: None,
                memory_gib_hour: None,
                replicas: ReplicaRule::Recorded,
                remarks: vec!["a remark".to_owned()],
            },
            without_samples: 1,
            unread: Vec::new(),
            accounts: names.iter().map(account).collect(),
        }
    }

    #[test]
    fn each_workload_is_in_exactly_one_shard() {
        let workload = |index: usize| Workload {
            namespace: format!("ns-{}", index % 7).into(),
            kind: "Deployment".into(),
            name: format!("web-{index}").into(),
            ..Workload::default()
        };
        for count in [1, 2, 3, 16] {
            let shards: Vec<Shard> = (0..count).map(|index| Shard { index, count }).collect();
            let mut sizes = vec![0_u32; count as usize];
            for workload in (0..2_000).map(workload) {
                let of: Vec<usize> =
                    (0..shards.len()).filter(|index| shards[*index].contains(&workload)).collect();
                assert_eq!(of.len(), 1);
                sizes[of[0]] += 1;
            }
            let expected = 2_000 / count;
            let is_balanced = |size: &u32| *size > expected / 2 && *size < expected * 2;
            assert!(sizes.iter().all(is_balanced), "{sizes:?}");
        }
    }

    #[test]
    fn a_shard_is_a_number_below_their_count() {
        assert_eq!("0/4".parse(), Ok(Shard { index: 0, count: 4 }));
        for text in ["", "1", "4/4", "0/0", "-1/4", "1/2/3", "0/1001"] {
            assert_eq!(text.parse::<Shard>(), Err(InvalidShard), "{text}");
        }
    }

    #[test]
    fn merged_shards_are_sorted_and_complete() {
        let named =
            |index: u32, names: &[&str]| (format!("{index}.json"), file(Some([index, 2]), names));
        let one = AccountsFile::merge(vec![named(0, &["b", "d"]), named(1, &["a", "c"])]);
        let other = AccountsFile::merge(vec![named(1, &["a", "c"]), named(0, &["b", "d"])]);
        let merged = one.expect("complete");
        assert_eq!(Ok(&merged), other.as_ref(), "whatever their order");
        let mut expected = file(None, &["a", "b", "c", "d"]);
        expected.without_samples = 2;
        assert_eq!(merged, expected, "as one process has it");
        assert!(merged.report_inputs().remarks[1].starts_with("2 workloads have no samples"));
        let text = json(&merged);
        assert_eq!(AccountsFile::read(Path::new("x"), text.as_bytes()), Ok(merged));
        let error = |files| AccountsFile::merge(files).expect_err("refused").to_string();
        assert!(error(vec![named(0, &["a"])]).contains("shard 1/2 is missing"));
        assert!(error(vec![named(0, &["a"]), named(0, &["a"])]).contains("given twice"));
        assert!(error(Vec::new()).contains("all shards"));
        let mut later = named(1, &["c"]);
        later.1.inputs.until = Time::from_secs(900);
        assert!(error(vec![named(0, &["a"]), later]).contains("the time differs"));
        let mut modelled = named(1, &["c"]);
        modelled.1.inputs.replicas = ReplicaRule::Model;
        assert!(error(vec![named(0, &["a"]), modelled]).contains("--hpa differs"));
    }

    #[test]
    fn other_files_are_rejected_with_their_name() {
        let mut without_policies = file(None, &["a"]);
        without_policies.inputs.policies.clear();
        for (text, why) in [
            ("{}", "missing field"),
            ("", "EOF"),
            (&*json(&file(None, &["a"])).replace(FILE_KIND, "recommend"), "its kind"),
            (&*json(&without_policies), "has not 0 policies"),
        ] {
            let error =
                AccountsFile::read(Path::new("x.json"), text.as_bytes()).expect_err("invalid");
            let error = error.to_string();
            assert!(error.starts_with("x.json: not a file of") && error.contains(why), "{error}");
        }
    }
}
