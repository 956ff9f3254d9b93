//! Man pages: one for each command of the program.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Command;
use clap_mangen::Man;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The name of its file, such as `plimsoll-explain-vpa.1`.
    pub file: String,
    /// Its text for troff.
    pub roff: String,
}

/// The pages of a command and of all commands below it. Hidden ones have none.
pub fn pages(mut command: Command) -> Result<Vec<Page>> {
    // Commands below get their full names from those above.
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<Page>) -> Result<()> {
    let page = Man::new(command.clone());
    let file = page.get_filename();
    let mut roff = Vec::new();
    page.render(&mut roff).with_context(|| file.clone())?;
    pages.push(Page { file, roff: keep_lines_of_examples(&String::from_utf8(roff)?) });
    let mut shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.try_for_each(|below| add_pages(below, pages))
}

/// The generator fills the lines of examples like a paragraph, under a heading that does not say what they
/// are.
fn keep_lines_of_examples(roff: &str) -> String {
    let Some((before, after)) = roff.split_once(".SH EXTRA\n") else { return roff.to_owned() };
    let examples = ["Examples:\n", "Example:\n"].iter().find_map(|title| after.strip_prefix(title));
    // The next heading fills lines again.
    format!("{before}.SH EXAMPLES\n.nf\n{}", examples.unwrap_or(after))
}

/// Writes pages into a folder, and returns their paths.
pub fn write(pages: &[Page], folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let write = |page: &Page| {
        let path = folder.join(&page.file);
        fs::write(&path, &page.roff).with_context(|| path.display().to_string())?;
        Ok(path)
    };
    pages.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page_with_its_flags_and_examples() {
        let flag = clap::Arg::new("days").long("days").help("Number of days");
        let command = Command::new("tool")
            .about("Does things")
            .subcommand(
                Command::new("show")
                    .about("Shows things")
                    .subcommand(Command::new("one").about("Shows one").arg(flag)),
            )
            .subcommand(Command::new("secret").hide(true))
            .disable_help_subcommand(true)
            .after_help("Examples:\n  tool show one");
        let pages = pages(command.mut_subcommands(|below| below.disable_help_subcommand(true)))
            .expect("pages");
        let files: Vec<&str> = pages.iter().map(|page| &*page.file).collect();
        assert_eq!(files, ["tool.1", "tool-show.1", "tool-show-one.1"]);
        assert!(
            pages[0].roff.contains(".SH EXAMPLES\n.nf\n  tool show one\n"),
            "{}",
            pages[0].roff
        );
        assert!(pages[2].roff.contains("days") && pages[2].roff.contains("Number of days"));
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("man1");
        let written = write(&pages, &below).expect("they can be written");
        assert_eq!(written[0], below.join("tool.1"));
        assert_eq!(fs::read_to_string(&written[2]).expect("a page"), pages[2].roff);
    }
}
