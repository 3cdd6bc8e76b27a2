//! Completion candidates: running volumes, their members, knobs with their values, and paths.
//!
//! A shell runs weft with [`VARIABLE`] set and the words of its command line. [`answer`] prints the
//! candidates for the word under the cursor, before the command line is parsed. The name of an
//! argument and the name of its value determine its candidates, so that every command with a TARGET
//! or a knob completes it in the same way.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::Write;

use clap::builder::StyledStr;
use clap::{Arg, Command, ValueHint};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use weft_engine::knobs::TABLE;

use crate::knobs::BITMAP;
use crate::target::running;

/// Environment variable with which the script of a shell asks for candidates; its value is the
/// shell's name.
pub(crate) const VARIABLE: &str = "_WEFT_COMPLETE";

/// Shells for which there is a completion script.
pub(crate) const SHELLS: Shells<'static> = Shells(&[&Bash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Prints candidates if a shell asks for them. Returns whether a shell has asked, so that the
/// process has nothing else to do.
///
/// # Errors
/// The shell is unknown, or no argument is possible at that place.
pub(crate) fn answer(cli: fn() -> Command) -> Result<bool, clap::Error> {
    let folder = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| with_candidates(cli()))
        .var(VARIABLE)
        .shells(SHELLS)
        .try_complete(std::env::args_os(), folder.as_deref())
}

/// The command line with candidates for the arguments of each subcommand.
fn with_candidates(cli: Command) -> Command {
    cli.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        command.mut_args(|arg| with_candidates_of(&name, arg))
    })
}

/// An argument of the subcommand `command` with its candidates.
fn with_candidates_of(command: &str, arg: Arg) -> Arg {
    let value = arg.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    // Members of these commands are those of a running volume.
    let is_running = ["fail", "get", "remove", "replace", "set"].contains(&command);
    // Only commands for running volumes take the bitmap beside the knobs.
    let is_live = ["get", "set"].contains(&command);
    match (arg.get_id().as_str(), value) {
        _ if !arg.get_action().takes_values() => arg,
        ("target", _) => arg.add(ArgValueCandidates::new(volumes)),
        ("knobs", "KNOB=VALUE") if is_live => arg.add(ArgValueCompleter::new(settings_live)),
        (_, "KNOB=VALUE") => arg.add(ArgValueCompleter::new(settings)),
        ("knobs", _) => arg.add(ArgValueCandidates::new(knobs)),
        (_, "MEMBER") if is_running => arg.add(ArgValueCandidates::new(members)),
        (_, "DIR") => arg.value_hint(ValueHint::DirPath),
        (_, value) if PATHS.iter().any(|word| value.contains(word)) => {
            arg.value_hint(ValueHint::AnyPath)
        }
        _ => arg,
    }
}

/// Words that the name of a value has if the value is a path.
const PATHS: [&str; 7] = ["DISK", "FILE", "JOB", "MEMBER", "PATH", "RUNS", "TRACE"];

/// Names of the running volumes, each with its level and state.
fn volumes() -> Vec<CompletionCandidate> {
    let each = running().into_iter().map(|(target, status)| {
        let told = status.volumes.first().map(|it| format!("{}, {}", it.level, it.array_state));
        CompletionCandidate::new(target.name).help(told.map(StyledStr::from))
    });
    each.collect()
}

/// Labels of the members of the running volumes that the command line names, or of all running
/// volumes if it names none.
fn members() -> Vec<CompletionCandidate> {
    let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").collect();
    let all = running();
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let any = all.iter().any(|(target, _)| is_named(&target.name));
    let named = all.iter().filter(|(target, _)| !any || is_named(&target.name));
    let members = named.flat_map(|(_, status)| &status.volumes).flat_map(|volume| &volume.members);
    let candidate = |label: &str, state: &str| {
        CompletionCandidate::new(label).help(Some(StyledStr::from(state.to_owned())))
    };
    members.map(|member| candidate(&member.label, &member.state)).collect()
}

/// Names of the knobs and of the setting `bitmap`, each with its meaning.
fn knobs() -> Vec<CompletionCandidate> {
    let knobs = TABLE.iter().map(|row| (row.name, row.doc));
    let all = knobs.chain([(BITMAP.name, BITMAP.doc)]);
    all.map(|(name, doc)| CompletionCandidate::new(name).help(Some(doc.into()))).collect()
}

/// Candidates for a setting of a new volume or a simulation: `KNOB=`, or `KNOB=VALUE` for each word
/// that the knob takes.
fn settings(current: &OsStr) -> Vec<CompletionCandidate> {
    let rows = TABLE.iter().map(|row| (row.name, row.range_live(), row.doc));
    settings_of(current, rows)
}

/// Candidates like those of [`settings`], for a running volume, which also has the setting
/// `bitmap=`.
fn settings_live(current: &OsStr) -> Vec<CompletionCandidate> {
    let rows = TABLE.iter().map(|row| (row.name, row.range_live(), row.doc));
    settings_of(current, rows.chain([(BITMAP.name, BITMAP.range.to_owned(), BITMAP.doc)]))
}

/// Candidates for the word `current`: `KNOB=` while the name is incomplete, then `KNOB=VALUE` for
/// each word that the knob takes. Ranges of numbers give no candidates.
fn settings_of(
    current: &OsStr,
    rows: impl Iterator<Item = (&'static str, String, &'static str)>,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let mut found = Vec::new();
    for (name, range, doc) in rows {
        let name = format!("{name}=");
        if name.len() > current.len() && name.starts_with(&*current) {
            found.push(CompletionCandidate::new(name).help(Some(doc.into())));
        } else if current.starts_with(&name) && range.contains(" | ") {
            let is_word = |word: &&str| !word.contains(' ') && !word.contains("..");
            let words = range.split(" | ").filter(is_word);
            let values = words.map(|word| format!("{name}{word}"));
            let fitting = values.filter(|value| value.starts_with(&*current));
            found.extend(fitting.map(CompletionCandidate::new));
        }
    }
    found
}

/// Completion for bash. readline splits words at `=`, and clap's own script does not join them
/// again, so that it would find no values for `KNOB=VALUE`. This script joins them before it asks.
struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        program: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let script = BASH.replace("VARIABLE", variable).replace("COMPLETER", completer);
        out.write_all(script.replace("PROGRAM", program).as_bytes())
    }

    fn write_complete(
        &self,
        cli: &mut Command,
        words: Vec<OsString>,
        folder: Option<&std::path::Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let last = words.len().saturating_sub(1);
        for candidate in complete(cli, words, last, folder)? {
            writeln!(out, "{}", candidate.get_value().to_string_lossy())?;
        }
        Ok(())
    }
}

/// Completion script for bash. The last word that it passes is the one under the cursor.
const BASH: &str = r#"_PROGRAM() {
    local words=() word joins='' i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $word == = || $joins ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        if [[ $word == = ]]; then joins=1; else joins=''; fi
    done
    local last=${words[${#words[@]} - 1]} IFS=$'\n'
    COMPREPLY=($(VARIABLE=bash COMPLETER -- "${words[@]}" 2>/dev/null))
    # Readline replaces what follows the last break.
    if [[ $last == *=* && $COMP_WORDBREAKS == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${last%=*}="}")
    fi
    if [[ ${COMPREPLY-} == *[=/] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -o bashdefault -F _PROGRAM PROGRAM
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn values(found: &[CompletionCandidate]) -> Vec<String> {
        found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn settings_are_names_first_and_then_words() {
        let live = |text: &str| values(&settings_live(text.as_ref()));
        assert_eq!(live("").len(), TABLE.len() + 1, "every knob, and the bitmap");
        assert_eq!(live("bit"), ["bitmap="]);
        assert_eq!(live("bitmap="), ["bitmap=internal", "bitmap=none"]);
        assert_eq!(live("check_reads=m"), ["check_reads=media"]);
        // Numbers have no candidates, nor have values that only a former kernel had.
        assert!(live("fifo_batch=").is_empty());
        assert!(!live("flush_batch=").contains(&"flush_batch=serial".to_owned()));
        assert!(live("no_such_knob=").is_empty());
        assert!(values(&settings("bit".as_ref())).is_empty(), "a new volume has none of its own");
    }

    /// Every command with a TARGET, a knob or a file completes it.
    #[test]
    fn arguments_have_candidates_by_their_names() {
        use clap::CommandFactory;
        let cli = with_candidates(crate::Cli::command());
        let mut counts = (0, 0, 0);
        for command in cli.get_subcommands() {
            for arg in command.get_arguments().filter(|arg| arg.get_num_args() != Some(0.into())) {
                let is_path = arg.get_value_hint() != ValueHint::Unknown;
                let listed = arg.get::<ArgValueCandidates>().is_some();
                let completed = arg.get::<ArgValueCompleter>().is_some();
                counts.0 += usize::from(listed);
                counts.1 += usize::from(completed);
                counts.2 += usize::from(is_path);
                if arg.get_id() == "target" {
                    assert!(listed, "{}", command.get_name());
                }
            }
        }
        assert!(counts.0 >= 16 && counts.1 >= 3 && counts.2 >= 20, "{counts:?}");
    }
}
