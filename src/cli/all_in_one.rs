//! `plimsoll run`: runs several roles in one process, each with its own flags.

use std::ffi::OsString;

use clap::{Arg, Args};

use super::{
    Exit, ROLES,
    config_from_flags::{add_role, ui_command},
    daemon::Daemon,
    environment::Environment,
    flag_syntax,
    flags::command,
    output::CliError,
    prometheus_auth::non_empty,
    ui,
    ui_server::{self, UiCommand, UiHandle},
};
use crate::{
    cluster::clock::Clock,
    controllers::{
        self,
        all_in_one::{AllInOneConfig, AllInOneHandle},
        runtime::{
            config::{Address, ProcessConfig},
            shutdown::run_until_signal,
        },
    },
};
use plimsoll_core::types::compat::Compat;

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll run --roles=recommender,updater,admission-controller
  plimsoll run --roles=recommender,watermark --kubeconfig ~/.kube/config
  plimsoll run --roles=recommender,updater --updater.dry-run
  plimsoll run --roles=recommender,updater,ui --ui.address=:8950

A flag applies to all roles that have it, or to one role if prefixed with its
name. `plimsoll ROLE --help` lists the flags of a role. All roles serve metrics
and health at one address: --address, by default :8942. The web page (ui) has an
address of its own: --ui.address, by default :8950.";

const DEFAULT_ADDRESS: &str = ":8942";
/// The address of the web page. It shares none with metrics, which need no login.
const UI_ADDRESS: &str = ":8950";

/// The address flags of roles. All roles share one address; a flag with a role's prefix adds another one.
const ADDRESS_FLAGS: [&str; 2] = ["address", "metrics-addr"];

/// Runs several roles in one process, which share watches and use less memory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Roles to run: recommender, updater, admission-controller, watermark, horizontal, ui
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
    pub(super) fn config(&self, environment: &Environment) -> Result<RunCommand, CliError> {
        let default_address = non_empty(&environment.variable("PLIMSOLL_FLAG_ADDRESS"));
        let role_flags = split_flags(self.roles.as_deref(), &self.flags, default_address);
        let role_flags = role_flags.map_err(CliError::usage)?;
        let mut controllers = AllInOneConfig::default();
        let mut ui = None;
        let mut shared: Option<(ProcessConfig, Compat)> = None;
        let mut warnings: Vec<String> = Vec::new();
        for (role, flags) in &role_flags.by_role {
            let process = if *role == ui::NAME {
                // It only reads, and has no decisions of its own.
                ui.insert(ui_command(flags, environment)?).process.clone()
            } else {
                let (process, compat) = add_role(role, flags, &mut controllers, environment)?;
                let (_, first) = shared.get_or_insert_with(|| (process.clone(), compat));
                if *first != compat {
                    let why =
                        "all roles must use the same --compat: set it once, without a role prefix";
                    return Err(why.into());
                }
                process
            };
            for warning in process.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        for text in &role_flags.addresses {
            let parsed: Result<Address, String> = text.parse();
            let address = parsed
                .map_err(|why| CliError::usage(format!("--address={text}: {why}; see --help")))?;
            if !controllers.addresses.contains(&address) {
                controllers.addresses.push(address);
            }
        }
        // The settings of the process are those of the first controller.
        let Some((process, compat)) = shared else {
            return Err(CliError::usage(
                "no roles selected; pass --roles, such as --roles=recommender,updater",
            ));
        };
        if let (Some(ui), Some(updater)) = (&mut ui, &controllers.updater) {
            ui.preview_updater(updater);
        }
        let names: Vec<&str> = role_flags.by_role.iter().map(|(role, _)| *role).collect();
        let name = Some(names.join(","));
        let process = ProcessConfig { warnings, ..process };
        let daemon = Daemon { role: "all-in-one process", name, workers: 2, compat, process };
        Ok(RunCommand { controllers, ui, daemon })
    }
}

pub(super) struct RunCommand {
    pub controllers: AllInOneConfig,
    /// The web page, if it is one of the roles.
    pub ui: Option<UiCommand>,
    pub daemon: Daemon,
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
    let (mut common_address, mut ui_address) = (None, None);
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        let Some(body) = text.strip_prefix("--").filter(|body| !body.is_empty()) else {
            return Err(format!(
                "unexpected argument {text:?}: flags start with two dashes; see --help"
            ));
        };
        let (name, value) = flag_syntax::split_value(body);
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
                Some(ui::NAME) => ui_address = value,
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
    if let Some((_, flags)) = role_flags.by_role.iter_mut().find(|(role, _)| *role == ui::NAME) {
        flags.push(format!("--address={}", ui_address.as_deref().unwrap_or(UI_ADDRESS)).into());
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
            let mut known = ROLES.iter().map(|(role, _)| *role).chain([ui::NAME]);
            let Some(role) = known.find(|role| *role == name) else {
                let names = ROLES.map(|(role, _)| role).join(", ");
                return Err(format!(
                    "--roles: unknown role {name:?}; valid roles are {names}, {}",
                    ui::NAME
                ));
            };
            if role_flags.by_role.iter().any(|(other, _)| *other == role) {
                return Err(format!("--roles contains {role} twice"));
            }
            role_flags.by_role.push((role, Vec::new()));
        }
        if let [(ui::NAME, _)] = &role_flags.by_role[..] {
            return Err("--roles=ui: to serve the page alone, run `plimsoll ui`".to_owned());
        }
        role_flags.by_role.sort_by_key(|(role, _)| *role == ui::NAME);
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
    let RunCommand { controllers, mut ui, daemon } = arguments.config(&Environment::default())?;
    if let Some(page) = &mut ui {
        page.read_files()?;
    }
    daemon.run(|signals| async {
        let starting = async {
            let controllers =
                Box::pin(controllers::all_in_one::connect_and_start(controllers)).await?;
            let page = match ui {
                Some(page) => {
                    let page = Box::pin(ui_server::start(page, Clock::wall())).await?;
                    tracing::info!(url = page.url, "serving the web page");
                    Some(page)
                }
                None => None,
            };
            Ok((controllers, page))
        };
        let stop = |(controllers, page): (AllInOneHandle, Option<UiHandle>)| async move {
            let stop_page = async {
                if let Some(page) = page {
                    page.stop().await;
                }
            };
            tokio::join!(controllers.stop(), stop_page);
        };
        Box::pin(run_until_signal(signals, starting, stop)).await
    })
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
    fn the_page_has_an_address_of_its_own_and_shares_the_other_flags() {
        for (line, page, addresses) in [
            ("--roles=ui,updater", "--address=:8950", ":8942"),
            ("--roles=updater,ui --address=:1", "--address=:8950", ":1"),
            (
                "--roles=updater,ui --ui.address=127.0.0.1:0 --ui.auth=token --kubeconfig=a",
                "--auth=token --kubeconfig=a --address=127.0.0.1:0",
                ":8942",
            ),
        ] {
            let shared = shared(line).expect(line);
            let find = |name: &str| {
                let found = shared.iter().find(|(role, _)| *role == name);
                found.map(|(_, flags)| &**flags)
            };
            assert_eq!(find("ui"), Some(page), "{line}");
            assert_eq!(find("addresses"), Some(addresses), "{line}");
            assert_eq!(shared[0].0, "updater", "{line}: a controller is first");
        }
    }

    #[test]
    fn the_page_previews_the_decisions_of_the_updater_in_its_process() {
        let flags = ["--updater.min-replicas=7", "--leader-elect-resource-namespace=ops"];
        let arguments = RunArgs {
            roles: Some("ui,updater".to_owned()),
            flags: flags.iter().map(OsString::from).collect(),
        };
        let command =
            arguments.config(&Environment::of(|_| String::new())).map_err(CliError::into_message);
        let command = command.expect("valid flags");
        let page = command.ui.expect("the page");
        let updater = command.controllers.updater.expect("the updater");
        assert_eq!(page.reader.pods.settings, updater.settings);
        assert_eq!(page.reader.pods.lease_namespace, "ops");
        assert_eq!(page.server.auth, crate::ui::access::AuthMode::Token);
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
            ("--roles=ui", "run `plimsoll ui`"),
            ("--roles=updater --ui.address=:1", "role \"ui\" is not in --roles"),
        ] {
            let message = shared(line).expect_err(line);
            assert!(message.contains(words) && !message.contains('\n'), "{line}: {message}");
        }
    }
}
