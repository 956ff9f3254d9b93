//! `plimsoll run`: runs several roles in one process, each with its own flags.

use std::ffi::OsString;

use clap::{Arg, Args};

use super::{
    Exit, ROLES, config_from_flags::add_role, daemon::Daemon, environment, flag_syntax,
    flags::command, output::CliError, watermark,
};
use crate::{
    controllers,
    controllers::{
        all_in_one::AllInOneConfig,
        runtime::config::{Address, ProcessConfig},
    },
};
use plimsoll_core::types::compat::Compat;

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll run --roles=recommender,updater,admission-controller
  plimsoll run --roles=recommender,watermark --kubeconfig ~/.kube/config
  plimsoll run --roles=recommender,updater --updater.dry-run

A flag applies to all roles that have it, or to one role if prefixed with its
name. `plimsoll ROLE --help` lists the flags of a role. All roles serve metrics
and health at one address: --address, by default :8942.";

const DEFAULT_ADDRESS: &str = ":8942";

/// The address flags of roles. All roles share one address; a flag with a role's prefix adds another one.
const ADDRESS_FLAGS: [&str; 2] = ["address", "metrics-addr"];

/// Runs several roles in one process, which share watches and use less memory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Roles to run: recommender, updater, admission-controller, watermark, horizontal
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
    /// Flags of the roles, such as --address=:8942 or --updater.dry-run
    #[arg(value_name = "FLAG", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct RoleFlags {
    /// The roles in the given order, with their flags.
    by_role: Vec<(&'static str, Vec<OsString>)>,
    addresses: Vec<String>,
}

impl RunArgs {
    /// Builds the configuration and validates it. `variable` reads the environment; `home` is the namespace of the
    /// process, if it is known.
    pub(super) fn config(
        &self,
        variable: impl Fn(&str) -> String + Copy,
        home: Option<&str>,
    ) -> Result<(AllInOneConfig, Daemon), CliError> {
        let default_address =
            Some(variable("PLIMSOLL_FLAG_ADDRESS")).filter(|text| !text.is_empty());
        let role_flags = split_flags(self.roles.as_deref(), &self.flags, default_address);
        let role_flags = role_flags.map_err(CliError::usage)?;
        let mut config = AllInOneConfig::default();
        let mut shared: Option<(ProcessConfig, Compat)> = None;
        for (role, flags) in &role_flags.by_role {
            let (mut process, compat) = add_role(role, flags, &mut config, variable, home)?;
            let warnings = std::mem::take(&mut process.warnings);
            let (process, first_compat) = shared.get_or_insert((process, compat));
            if *first_compat != compat {
                let why =
                    "all roles must use the same --compat: set it once, without a role prefix";
                return Err(why.into());
            }
            for warning in warnings {
                if !process.warnings.contains(&warning) {
                    process.warnings.push(warning);
                }
            }
        }
        for text in &role_flags.addresses {
            let parsed: Result<Address, String> = text.parse();
            let address = parsed
                .map_err(|why| CliError::usage(format!("--address={text}: {why}; see --help")))?;
            if !config.addresses.contains(&address) {
                config.addresses.push(address);
            }
        }
        let Some((process, compat)) = shared else {
            return Err(CliError::usage(
                "no roles selected; pass --roles, such as --roles=recommender,updater",
            ));
        };
        let names: Vec<&str> = role_flags.by_role.iter().map(|(role, _)| *role).collect();
        let name = Some(names.join(","));
        let daemon = Daemon { role: "all-in-one process", name, workers: 2, compat, process };
        Ok((config, daemon))
    }
}

/// Assigns flags to roles. `default_address` applies if no flag sets the address.
fn split_flags(
    roles: Option<&str>,
    arguments: &[OsString],
    default_address: Option<String>,
) -> Result<RoleFlags, String> {
    let mut root = command();
    root.build();
    // clap only parses --roles before the first flag of a role, so --roles after it is handled here.
    let (arguments, roles_flag) = take_roles(arguments)?;
    let mut role_flags = RoleFlags::for_roles(roles_flag.as_deref().or(roles).unwrap_or_default())?;
    let mut rest = arguments.into_iter();
    let mut common_address = None;
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        let Some(body) = text.strip_prefix("--").filter(|body| !body.is_empty()) else {
            return Err(format!(
                "unexpected argument {text:?}: flags start with two dashes; see --help"
            ));
        };
        let (name, value) =
            body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
        let (only, name) =
            name.split_once('.').map_or((None, name), |(role, name)| (Some(role), name));
        if let Some(only) =
            only.filter(|only| role_flags.by_role.iter().all(|(role, _)| role != only))
        {
            return Err(format!("--{only}.{name}: role {only:?} is not in --roles"));
        }
        let matching: Vec<(usize, &Arg)> = role_flags
            .by_role
            .iter()
            .enumerate()
            .filter(|(_, (role, _))| only.is_none_or(|only| only == *role))
            .filter_map(|(at, (role, _))| Some((at, role_flag(&root, role, name)?)))
            .collect();
        let is_address = ADDRESS_FLAGS.contains(&name);
        let Some(needs_value) = matching
            .first()
            .map(|(_, flag)| flag_syntax::needs_value(flag))
            .or(is_address.then_some(true))
        else {
            let owner = only.unwrap_or("the selected roles");
            let hint = suggestion(&root, &role_flags, name);
            return Err(format!(
                "unknown flag --{name} of {owner}{hint}; see `plimsoll ROLE --help`"
            ));
        };
        let value = match value {
            None if needs_value => {
                let next =
                    rest.next().ok_or_else(|| format!("--{name} requires a value; see --help"))?;
                Some(next.to_string_lossy().into_owned())
            }
            given => given.map(ToOwned::to_owned),
        };
        if is_address {
            match only {
                Some(_) => role_flags.addresses.extend(value),
                None => common_address = value,
            }
            continue;
        }
        let matching: Vec<(usize, String)> = matching
            .into_iter()
            .filter_map(|(at, flag)| Some((at, flag.get_long()?.to_owned())))
            .collect();
        for (at, name) in matching {
            let flag = match &value {
                Some(value) => format!("--{name}={value}"),
                None => format!("--{name}"),
            };
            role_flags.by_role[at].1.push(flag.into());
        }
    }
    role_flags.addresses.insert(
        0,
        common_address.or(default_address).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
    );
    Ok(role_flags)
}

fn role_flag<'a>(root: &'a clap::Command, role: &str, name: &str) -> Option<&'a Arg> {
    let flags = root.find_subcommand(role)?;
    flag_syntax::find(flags, name).or_else(|| flag_syntax::find(flags, &name.replace('_', "-")))
}

impl RoleFlags {
    fn for_roles(roles: &str) -> Result<Self, String> {
        let mut role_flags = Self::default();
        for name in roles.split(',').map(str::trim) {
            let Some((role, _)) = ROLES.into_iter().find(|(role, _)| *role == name) else {
                let names = ROLES.map(|(role, _)| role).join(", ");
                return Err(format!("--roles: unknown role {name:?}; valid roles are {names}"));
            };
            if role_flags.by_role.iter().any(|(other, _)| *other == role) {
                return Err(format!("--roles contains {role} twice"));
            }
            role_flags.by_role.push((role, Vec::new()));
        }
        Ok(role_flags)
    }
}

/// Removes --roles from the flags and returns its value.
fn take_roles(arguments: &[OsString]) -> Result<(Vec<OsString>, Option<String>), String> {
    let (mut flags, mut roles) = (Vec::new(), None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if let Some(value) = text.strip_prefix("--roles=") {
            roles = Some(value.to_owned());
        } else if text == "--roles" {
            let value = arguments.next().ok_or("--roles requires a value; see --help")?;
            roles = Some(value.to_string_lossy().into_owned());
        } else {
            flags.push(argument.clone());
        }
    }
    Ok((flags, roles))
}

fn suggestion(root: &clap::Command, role_flags: &RoleFlags, name: &str) -> String {
    let flags = role_flags.by_role.iter().filter_map(|(role, _)| root.find_subcommand(role));
    let names = flags.flat_map(clap::Command::get_arguments).filter_map(Arg::get_long);
    match crate::report::explain::suggestions::suggestions(name, names).first() {
        Some(near) => format!("; a similar one exists: --{near}"),
        None => String::new(),
    }
}

pub fn run(arguments: &RunArgs) -> Result<Exit, CliError> {
    let home = watermark::pod_namespace();
    let (config, daemon) = arguments.config(environment, home.as_deref())?;
    daemon.run(|signals| controllers::all_in_one::run(config, signals))
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
        all.push(("addresses", shares.addresses.join(" ")));
        Ok(all)
    }

    #[test]
    fn a_flag_applies_to_all_roles_that_have_it_or_to_the_named_one() {
        let all = shared(
            "--roles=recommender,updater --leader-elect=false --updater.dry-run --recommender_interval 30s \
             --updater.address=:1",
        );
        let wanted = [
            ("recommender", "--leader-elect=false --recommender-interval=30s"),
            ("updater", "--leader-elect=false --dry-run"),
            ("addresses", ":8942 :1"),
        ];
        assert_eq!(all, Ok(wanted.map(|(role, flags)| (role, flags.to_owned())).to_vec()));
        let addresses = shared("--address 127.0.0.1:0 --roles watermark").expect("valid flags");
        assert_eq!(addresses.last().map(|(_, text)| &**text), Some("127.0.0.1:0"));
    }

    #[test]
    fn invalid_arguments_are_a_one_line_error_with_a_remedy() {
        for (line, words) in [
            ("", "unknown role \"\"; valid roles are"),
            ("--roles=recomender", "unknown role \"recomender\""),
            ("--roles=updater,updater", "contains updater twice"),
            ("--roles=updater --recommender.v=4", "role \"recommender\" is not in --roles"),
            ("--roles=updater --dry-rum", "a similar one exists: --dry-run"),
            ("--roles=updater --updater-interval", "requires a value"),
            ("--roles=updater dry-run", "unexpected argument"),
        ] {
            let message = shared(line).expect_err(line);
            assert!(message.contains(words) && !message.contains('\n'), "{line}: {message}");
        }
    }
}
