//! `plimsoll completion`: completion scripts for shells, and the words that they and kubectl ask for while a
//! user types.
//!
//! Scripts contain commands and flags, which clap generates, and ask `plimsoll __complete` for names. That is
//! a few lines of each shell; clap's own engine for words that are found at runtime is not stable yet.

mod position;
mod shell_scripts;

use std::{ffi::OsString, sync::mpsc, thread, time::Duration};

use clap::Args;
use kube::config::Kubeconfig;

use self::{
    position::{Names, Position},
    shell_scripts::Shell,
};
use super::{
    Exit,
    environment::Environment,
    flags::command,
    one_shot::{block_on, connect},
    output::{self, CliError},
};
use crate::{
    controllers::runtime::command_client::{ClusterOptions, Impersonation},
    report::collect::object_names::{self, MAX_NAMES},
};

/// How long a shell waits for names.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What kubectl does with words, by the numbers of cobra's ShellCompDirective.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

pub(super) const EXAMPLES: &str = "\
Examples:
  source <(plimsoll completion bash)              in ~/.bashrc
  plimsoll completion zsh > ~/.zfunc/_plimsoll    a directory of fpath
  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish
  plimsoll completion powershell >> $PROFILE

Names of objects, namespaces and contexts are read while you type, for at most
two seconds. For kubectl plimsoll, link the program as kubectl_complete-plimsoll
in a directory of PATH.";

/// Prints a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &CompletionArgs) -> Result<Exit, CliError> {
    output::print_result(&arguments.shell.script())?;
    Ok(Exit::Fine)
}

/// Prints the names that complete the last word, one per line, and nothing if it is not to be a name.
pub fn complete_names(words: &[OsString]) -> Exit {
    complete(words, |position, names| {
        names.iter().map(|name| format!("{}{name}", position.prefix)).collect()
    })
}

/// Prints everything that completes the last word after `kubectl plimsoll`, as kubectl expects it.
pub fn complete_for_kubectl(words: &[OsString]) -> Exit {
    complete(words, kubectl_lines)
}

/// Prints the lines for the last word, and the names that complete it.
fn complete(words: &[OsString], lines: fn(&Position<'_>, &[String]) -> Vec<String>) -> Exit {
    let mut root = command();
    root.build();
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let position = Position::find(&root, &words);
    // A name with a line break cannot be one word of a command line.
    let lines = lines(&position, &names(&position)).into_iter();
    let lines = lines.filter(|line| !line.chars().any(|letter| "\n\r\0".contains(letter)));
    // Errors are not shown while the user types.
    let _ = output::print_result(&lines.map(|line| line + "\n").collect::<String>());
    Exit::Fine
}

/// The words with their descriptions, and in the last line what kubectl does with them.
fn kubectl_lines(position: &Position<'_>, names: &[String]) -> Vec<String> {
    let prefix = &position.prefix;
    let mut lines: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
    let are_prefixes = !lines.is_empty() && lines.iter().all(|name| name.ends_with('/'));
    for candidate in position.candidates() {
        let separator = if candidate.description.is_empty() { "" } else { "\t" };
        let word = format!("{prefix}{}{separator}{}", candidate.word, candidate.description);
        lines.push(word);
    }
    let files = if position.may_be_a_path() { 0 } else { NO_FILES };
    let space = if are_prefixes { NO_SPACE } else { 0 };
    lines.push(format!(":{}", files | space));
    lines
}

/// The names that complete the word; none if they cannot be read in time.
fn names(position: &Position<'_>) -> Vec<String> {
    let Some(names) = position.names() else { return Vec::new() };
    let value = |flag: &str| position.value(flag, |name| Environment::default().variable(name));
    let options = ClusterOptions {
        kubeconfig: value("kubeconfig").map(Into::into),
        context: value("context"),
        impersonation: Impersonation { as_user: value("as_user"), as_group: Vec::new() },
    };
    let namespace = value("namespace");
    let word = position.word.clone();
    within(TIMEOUT, move || match names {
        Names::Contexts => contexts(&options, &word),
        _ => read(names, &options, namespace.as_deref(), &word).unwrap_or_default(),
    })
    .unwrap_or_default()
}

/// Runs something on another thread, and returns `None` if it takes longer. A client may wait for a program
/// that signs in, which a timeout of the runtime does not interrupt. The thread ends with the process.
fn within<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || {
            // The receiver is gone after the timeout.
            let _ = sender.send(work());
        })
        .ok()?;
    receiver.recv_timeout(timeout).ok()
}

fn contexts(options: &ClusterOptions, word: &str) -> Vec<String> {
    let read = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let contexts = read.map(|file| file.contexts).unwrap_or_default().into_iter();
    let names = contexts.map(|context| context.name).filter(|name| name.starts_with(word));
    names.take(MAX_NAMES).collect()
}

fn read(
    names: Names,
    options: &ClusterOptions,
    namespace: Option<&str>,
    word: &str,
) -> Result<Vec<String>, CliError> {
    block_on(async {
        let cluster = connect(options, "plimsoll-completion").await?;
        Ok(match names {
            Names::Contexts => Vec::new(),
            Names::Namespaces => object_names::namespaces(&cluster, word).await,
            Names::Objects(kind) => object_names::objects(&cluster, kind, namespace, word).await,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(line: &str, names: &[&str]) -> Vec<String> {
        let mut root = command();
        root.build();
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        kubectl_lines(&Position::find(&root, &words), &names)
    }

    #[test]
    fn kubectl_gets_words_with_descriptions_and_what_to_do_with_them() {
        let commands = lines("explain ", &[]);
        assert_eq!(commands.len(), 5);
        assert_eq!(commands[0], "vpa\tExplains the recommendation of a VPA");
        assert_eq!(commands[4], ":4");
        assert_eq!(lines("explain vpa ", &["shop/", "data/"]), ["shop/", "data/", ":6"]);
        assert_eq!(lines("explain vpa ", &["web", "data/"]), ["web", "data/", ":4"]);
        assert_eq!(lines("status --context=p", &["prod"]), ["--context=prod", ":4"]);
        assert_eq!(lines("status --kubeconfig ", &[]), [":0"]);
        assert_eq!(lines("explain vpa web ", &[]), [":4"]);
    }

    #[test]
    fn contexts_are_those_of_the_kubeconfig() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        let text = "contexts: [{name: prod-eu}, {name: 'arn:aws:eks:dev'}, {name: prod-us}]";
        std::fs::write(&path, text).expect("a file");
        let options = ClusterOptions { kubeconfig: Some(path), ..ClusterOptions::default() };
        assert_eq!(contexts(&options, "prod"), ["prod-eu", "prod-us"]);
        assert_eq!(contexts(&options, "arn:aws:"), ["arn:aws:eks:dev"]);
        let missing = ClusterOptions {
            kubeconfig: Some(folder.path().join("x")),
            ..ClusterOptions::default()
        };
        assert!(contexts(&missing, "").is_empty());
    }

    #[test]
    fn names_that_come_too_late_are_left_out() {
        let (release, blocked) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(1), move || blocked.recv().is_ok());
        assert_eq!(late, None);
        drop(release);
        assert_eq!(within(Duration::MAX, || 7), Some(7));
    }
}
