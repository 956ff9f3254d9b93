//! Completion scripts: commands, flags and values from clap's generators, and a few lines for each shell that
//! ask `plimsoll __complete` for names first.

use std::collections::BTreeSet;

use clap::{Command, ValueEnum};
use clap_complete::{Generator, shells};

use crate::cli::flags::command;

/// The name under which the program is completed.
const PROGRAM: &str = "plimsoll";

/// The shells that have scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "PowerShell is the name of one")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
}

/// bash splits words at `=` and `:` too, which the candidates must not repeat. The tilde of `~/bin/plimsoll`
/// is not expanded.
const BASH: &str = r#"
# Names of objects and namespaces in the cluster, and of contexts in the kubeconfig.
_plimsoll_names() {
    local line=${COMP_LINE:0:COMP_POINT} words=() names=() name word
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    while IFS= read -r name; do
        names+=("$name")
    done < <("${1/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null)
    if [[ ${#names[@]} -eq 0 ]]; then
        _plimsoll "$@"
        return
    fi
    word=${words[${#words[@]} - 1]}
    COMPREPLY=("${names[@]#"${word%"$2"}"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace
    fi
}
complete -F _plimsoll_names -o bashdefault -o default plimsoll
"#;

const ZSH: &str = r#"    local -a names
    names=(${(f)"$(${(e)words[1]} __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"})
    if (( $#names )); then
        compadd -S '' -- ${(M)names:#*/}
        compadd -- ${names:#*/}
        return
    fi
"#;

/// Values of a flag come without `--name=`.
const FISH: &str = r#"
# Names of objects and namespaces in the cluster, and of contexts in the kubeconfig.
function __fish_plimsoll_names
    set -l words (commandline -opc)
    $words[1] __complete $words[2..] (commandline -ct) 2>/dev/null | string replace -r -- '^--[^=]*=' ''
end
complete -c plimsoll -f -a "(__fish_plimsoll_names)"
"#;

const POWERSHELL: &str = r"
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
    if (-not $wordToComplete) { $words += '' }
    $names = @(& $commandAst.CommandElements[0].ToString() __complete @words 2>$null)
    if ($names.Count) {
        return $names | ForEach-Object { [CompletionResult]::new($_, $_, 'ParameterValue', $_) }
    }
";

impl Shell {
    pub fn script(self) -> String {
        let mut command = command();
        command.set_bin_name(PROGRAM);
        command.build();
        match self {
            Self::Bash => generate(&shells::Bash, &command) + BASH,
            Self::Zsh => insert(&generate(&shells::Zsh, &command), "\n_plimsoll() {\n", ZSH),
            Self::Fish => generate(&shells::Fish, &command) + FISH + &fish_values(&command),
            Self::PowerShell => insert(
                &generate(&shells::PowerShell, &command),
                "    param($wordToComplete, $commandAst, $cursorPosition)\n",
                POWERSHELL,
            ),
        }
    }
}

fn generate(generator: &impl Generator, command: &Command) -> String {
    let mut script = Vec::new();
    // Writing to memory cannot fail.
    let _ = generator.try_generate(command, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Inserts lines after an anchor, which a test requires to be there.
fn insert(script: &str, anchor: &str, lines: &str) -> String {
    script.replacen(anchor, &format!("{anchor}{lines}"), 1)
}

/// fish asks only the completions of a flag for its value.
fn fish_values(command: &Command) -> String {
    let clients: BTreeSet<&str> = command
        .get_subcommands()
        .filter(|below| has_context(below))
        .map(Command::get_name)
        .collect();
    let clients = clients.into_iter().collect::<Vec<_>>().join(" ");
    let flag = |flag: &str| {
        format!(
            "complete -c plimsoll -n \"__fish_seen_subcommand_from {clients}\" {flag} -x -a \
             \"(__fish_plimsoll_names)\"\n"
        )
    };
    flag("-l context") + &flag("-s n -l namespace")
}

/// Whether a command, or one below it, connects to the cluster of a context.
fn has_context(command: &Command) -> bool {
    command.get_arguments().any(|flag| flag.get_long() == Some("context"))
        || command.get_subcommands().any(has_context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELLS: [Shell; 4] = [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell];

    #[test]
    fn scripts_contain_every_command_and_flag() {
        fn check(command: &Command, depth: usize, (script, shell): (&str, Shell)) -> usize {
            let mut count = 0;
            for below in command.get_subcommands() {
                // clap generates no third level for fish: those of watermark dry-run.
                if shell != Shell::Fish || depth < 2 {
                    assert!(script.contains(below.get_name()), "{shell:?}: {}", below.get_name());
                    count += check(below, depth + 1, (script, shell));
                }
            }
            for long in command.get_arguments().filter_map(clap::Arg::get_long) {
                let flag = match shell {
                    Shell::Fish => format!("-l {long}"),
                    _ => format!("--{long}"),
                };
                assert!(script.contains(&flag), "{shell:?}: {flag}");
                count += 1;
            }
            count
        }
        let mut root = command();
        root.build();
        for shell in SHELLS {
            let count = check(&root, 0, (&shell.script(), shell));
            assert!(count > 400, "{shell:?}: only {count} flags");
        }
    }

    #[test]
    fn scripts_ask_for_names_once() {
        for shell in SHELLS {
            let script = shell.script();
            assert_eq!(script.matches("__complete ").count(), 1, "{shell:?}");
        }
        let fish = Shell::Fish.script();
        let values =
            fish.lines().filter(|line| line.ends_with("-x -a \"(__fish_plimsoll_names)\""));
        let values: Vec<&str> = values.collect();
        assert_eq!(values.len(), 2, "{values:?}");
        for value in values {
            assert!(value.contains(" explain ") && !value.contains(" demo "), "{value}");
        }
    }
}
