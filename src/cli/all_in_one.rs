//! `plimsoll run`: several roles in one process, each with the flags that it knows.

use std::ffi::OsString;

use clap::{Arg, Args};

use super::{
    Exit, ROLES, admission, command,
    config_from_flags::{admission_from, recommender_from, updater_from, watermark_from},
    daemon::Daemon,
    output::CliError,
    pflag, recommender, updater, watermark,
};
use crate::{
    controllers,
    controllers::{
        all_in_one::AllInOneConfig,
        runtime::config::{Address, LogConfig},
    },
};
use plimsoll_core::types::compat::Compat;

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll run --roles=recommender,updater,admission-controller
  plimsoll run --roles=recommender,watermark --kubeconfig ~/.kube/config
  plimsoll run --roles=recommender,updater --updater.dry-run

A flag is for all roles that know it, and with the name of a role before it for
that one. Which there are says `plimsoll ROLE --help`. Metrics and health of all
are at one address: --address, :8942 unless it is set.";

/// Where metrics and health are, unless it is set.
const DEFAULT_ADDRESS: &str = ":8942";

/// Flags of where a role is served: together they are served at one place, and a role of its own asks for one more.
const ADDRESS_FLAGS: [&str; 2] = ["address", "metrics-addr"];

/// Runs several roles in one process: one watch of each kind, less memory than apart
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Which: recommender, updater, admission-controller, watermark
    #[arg(long, value_name = "ROLES")]
    #[arg(env = "PLIMSOLL_FLAG_ROLES", hide_env = true)]
    roles: Option<String>,
    /// Flags of the roles, such as --address=:8942 or --updater.dry-run
    #[arg(value_name = "FLAG", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

/// What each role is given.
#[derive(Debug, Default, PartialEq, Eq)]
struct RoleFlags {
    /// Roles in the order in which they were named, with their flags.
    by_role: Vec<(&'static str, Vec<OsString>)>,
    /// Where they are to be scraped and probed.
    addresses: Vec<String>,
}

/// What all roles of a process have to agree on.
struct SharedSettings {
    log: LogConfig,
    compat: Compat,
    warnings: Vec<String>,
}

impl RunArgs {
    /// What was asked for, checked as a whole. `variable` looks into the environment; `home` is the namespace that the
    /// process is in, where it is known.
    pub(super) fn config(
        &self,
        variable: impl Fn(&str) -> String + Copy,
        home: Option<&str>,
    ) -> Result<(AllInOneConfig, Daemon), CliError> {
        let place = Some(variable("PLIMSOLL_FLAG_ADDRESS")).filter(|place| !place.is_empty());
        let shares = split_flags(self.roles.as_deref(), &self.flags, place);
        let shares = shares.map_err(|why| CliError::new(Exit::Usage, why))?;
        let mut config = AllInOneConfig::default();
        let mut all: Option<SharedSettings> = None;
        for (role, flags) in &shares.by_role {
            let SharedSettings { log, compat, warnings } =
                read_role(role, flags, &mut config, variable, home)?;
            let all = all.get_or_insert(SharedSettings { log, compat, warnings: Vec::new() });
            if all.compat != compat {
                let why = "roles that run together are compatible with the same: give --compat once, for all";
                return Err(CliError::new(Exit::Findings, why));
            }
            for warning in warnings {
                if !all.warnings.contains(&warning) {
                    all.warnings.push(warning);
                }
            }
        }
        for place in &shares.addresses {
            let read: Result<Address, String> = place.parse();
            let address = read.map_err(|why| {
                CliError::new(Exit::Usage, format!("--address={place}: {why}; see --help"))
            })?;
            if !config.addresses.contains(&address) {
                config.addresses.push(address);
            }
        }
        let Some(SharedSettings { log, compat, warnings }) = all else {
            return Err(CliError::new(
                Exit::Usage,
                "name the roles, as in --roles=recommender,updater",
            ));
        };
        let names: Vec<&str> = shares.by_role.iter().map(|(role, _)| *role).collect();
        let name = Some(names.join(","));
        let start =
            Daemon { role: "process of several roles", name, workers: 2, compat, log, warnings };
        Ok((config, start))
    }
}

/// Reads the flags of one role, as it would read them alone.
fn read_role(
    role: &str,
    flags: &[OsString],
    config: &mut AllInOneConfig,
    variable: impl Fn(&str) -> String,
    home: Option<&str>,
) -> Result<SharedSettings, CliError> {
    let (log, compat, warnings) = match role {
        recommender::NAME => {
            let of = recommender_from(flags, variable)?;
            let common = (of.log.clone(), of.compat, of.warnings.clone());
            config.recommender = Some(of);
            common
        }
        updater::NAME => {
            let of = updater_from(flags, variable)?;
            let common = (of.log.clone(), of.settings.compat, of.warnings.clone());
            config.updater = Some(of);
            common
        }
        admission::NAME => {
            let of = admission_from(flags, variable)?;
            let common = (of.log.clone(), of.compat, of.warnings.clone());
            config.admission = Some(of);
            common
        }
        _ => {
            let of = watermark_from(flags, variable, home.map(ToOwned::to_owned))?;
            let common = (of.log.clone(), of.compat, of.warnings.clone());
            config.watermark = Some(of);
            common
        }
    };
    Ok(SharedSettings { log, compat, warnings })
}

/// Gives each role the flags that are for it. `place` is where they are served, if no flag says it.
fn split_flags(
    roles: Option<&str>,
    words: &[OsString],
    place: Option<String>,
) -> Result<RoleFlags, String> {
    let mut root = command();
    root.build();
    // Whatever stands before the first flag of a role is clap's; what stands behind it comes here as it is.
    let (words, behind) = take_roles(words)?;
    let mut shares = RoleFlags::for_roles(behind.as_deref().or(roles).unwrap_or_default())?;
    let mut rest = words.into_iter();
    let mut common = None;
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let Some(body) = text.strip_prefix("--").filter(|body| !body.is_empty()) else {
            return Err(format!(
                "{text:?} is no flag: flags have two dashes and a name; see --help"
            ));
        };
        let (name, value) =
            body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
        let (only, name) =
            name.split_once('.').map_or((None, name), |(role, name)| (Some(role), name));
        if let Some(only) = only.filter(|only| shares.by_role.iter().all(|(role, _)| role != only))
        {
            return Err(format!("--{only}.{name}: {only:?} is not among --roles"));
        }
        let knowing: Vec<(usize, &Arg)> = shares
            .by_role
            .iter()
            .enumerate()
            .filter(|(_, (role, _))| only.is_none_or(|only| only == *role))
            .filter_map(|(at, (role, _))| Some((at, role_flag(&root, role, name)?)))
            .collect();
        let is_place = ADDRESS_FLAGS.contains(&name);
        let Some(needs_value) =
            knowing.first().map(|(_, flag)| pflag::needs_value(flag)).or(is_place.then_some(true))
        else {
            let whose = only.unwrap_or("one of these roles");
            let near = suggestion(&root, &shares, name);
            return Err(format!(
                "--{name} is no flag of {whose}{near}; see `plimsoll ROLE --help`"
            ));
        };
        let value = match value {
            None if needs_value => {
                let next =
                    rest.next().ok_or_else(|| format!("--{name} needs a value; see --help"))?;
                Some(next.to_string_lossy().into_owned())
            }
            own => own.map(ToOwned::to_owned),
        };
        if is_place {
            match only {
                Some(_) => shares.addresses.extend(value),
                None => common = value,
            }
            continue;
        }
        let knowing: Vec<(usize, String)> = knowing
            .into_iter()
            .filter_map(|(at, flag)| Some((at, flag.get_long()?.to_owned())))
            .collect();
        for (at, name) in knowing {
            let flag = match &value {
                Some(value) => format!("--{name}={value}"),
                None => format!("--{name}"),
            };
            shares.by_role[at].1.push(flag.into());
        }
    }
    shares.addresses.insert(0, common.or(place).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()));
    Ok(shares)
}

/// The flag of a role that is called so.
fn role_flag<'a>(root: &'a clap::Command, role: &str, name: &str) -> Option<&'a Arg> {
    let flags = root.find_subcommand(role)?;
    pflag::find(flags, name).or_else(|| pflag::find(flags, &name.replace('_', "-")))
}

impl RoleFlags {
    /// Of these roles, without flags yet.
    fn for_roles(roles: &str) -> Result<Self, String> {
        let mut shares = Self::default();
        for name in roles.split(',').map(str::trim) {
            let Some((role, _)) = ROLES.into_iter().find(|(role, _)| *role == name) else {
                let names = ROLES.map(|(role, _)| role).join(", ");
                return Err(format!("--roles: {name:?} is no role; name some of {names}"));
            };
            if shares.by_role.iter().any(|(other, _)| *other == role) {
                return Err(format!("--roles names {role} twice"));
            }
            shares.by_role.push((role, Vec::new()));
        }
        Ok(shares)
    }
}

/// The flags that are left, and the roles where they were named among them.
fn take_roles(words: &[OsString]) -> Result<(Vec<OsString>, Option<String>), String> {
    let (mut left, mut roles) = (Vec::new(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if let Some(named) = text.strip_prefix("--roles=") {
            roles = Some(named.to_owned());
        } else if text == "--roles" {
            let named = words.next().ok_or("--roles needs a value; see --help")?;
            roles = Some(named.to_string_lossy().into_owned());
        } else {
            left.push(word.clone());
        }
    }
    Ok((left, roles))
}

fn suggestion(root: &clap::Command, shares: &RoleFlags, name: &str) -> String {
    let flags = shares.by_role.iter().filter_map(|(role, _)| root.find_subcommand(role));
    let names = flags.flat_map(clap::Command::get_arguments).filter_map(Arg::get_long);
    match crate::report::explain::suggestions::suggestions(name, names).first() {
        Some(near) => format!("; a similar one exists: --{near}"),
        None => String::new(),
    }
}

/// Runs them until they are told to end.
pub fn run(arguments: &RunArgs) -> Result<Exit, CliError> {
    let home = watermark::pod_namespace();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (config, start) = arguments.config(variable, home.as_deref())?;
    start.run(|signals| controllers::all_in_one::run(config, signals))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let shares = split_flags(None, &words, None)?;
        let written = |flags: Vec<OsString>| {
            let flags: Vec<_> = flags.iter().map(|flag| flag.to_string_lossy()).collect();
            flags.join(" ")
        };
        let mut all: Vec<_> =
            shares.by_role.into_iter().map(|(role, flags)| (role, written(flags))).collect();
        all.push(("places", shares.addresses.join(" ")));
        Ok(all)
    }

    #[test]
    fn a_flag_is_for_all_roles_that_know_it_or_for_the_one_that_is_named() {
        let all = shared(
            "--roles=recommender,updater --leader-elect=false --updater.dry-run --recommender_interval 30s \
             --updater.address=:1",
        );
        let wanted = [
            ("recommender", "--leader-elect=false --recommender-interval=30s"),
            ("updater", "--leader-elect=false --dry-run"),
            ("places", ":8942 :1"),
        ];
        assert_eq!(all, Ok(wanted.map(|(role, flags)| (role, flags.to_owned())).to_vec()));
        let places = shared("--address 127.0.0.1:0 --roles watermark").expect("makes sense");
        assert_eq!(places.last().map(|(_, places)| &**places), Some("127.0.0.1:0"));
    }

    #[test]
    fn what_makes_no_sense_is_one_line_that_says_what_to_do() {
        for (line, words) in [
            ("", "is no role; name some of"),
            ("--roles=recomender", "\"recomender\" is no role"),
            ("--roles=updater,updater", "names updater twice"),
            ("--roles=updater --recommender.v=4", "\"recommender\" is not among --roles"),
            ("--roles=updater --dry-rum", "a similar one exists: --dry-run"),
            ("--roles=updater --updater-interval", "needs a value"),
            ("--roles=updater dry-run", "is no flag"),
        ] {
            let said = shared(line).expect_err(line);
            assert!(said.contains(words) && !said.contains('\n'), "{line}: {said}");
        }
    }
}
