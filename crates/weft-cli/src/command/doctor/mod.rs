//! `weft doctor`: what is wrong with running volumes and this machine, and what to do about it.
//!
//! [`volume`] checks the status of a server; [`machine`] checks the kernel, and what killed servers
//! have left. No disk is read.

mod machine;
mod volume;

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout, style};

use crate::target::{self, Target};
use machine::Machine;

/// Says what is wrong with running volumes and this machine, and what to do about it
///
/// A problem is a loss of data or of redundancy, now or after the next failure. Advice is what may
/// be slower or shorter than it could be. Nothing is changed, and no disk is read.
///
/// Exit status: 0, or 4 when there is a problem.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Names or control sockets of running volumes [default: all that run, and this machine]
    targets: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Something about a volume or this machine that is wrong, or could be better.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    /// Name of the finding, which stays the same between versions.
    id: &'static str,
    /// Name of the volume that the finding is about; `None` for this machine.
    volume: Option<String>,
    /// Label of the member that the finding is about; `None` if it is about no member.
    member: Option<String>,
    says: String,
    /// Next step for the user: a command, or a place to look at.
    next: String,
}

/// Severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Data or redundancy is lost, or the next failure will lose it.
    Problem,
    /// Something is slower than it could be, or takes longer after a crash.
    Advice,
}

/// Numbers of volumes, members and checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Looked {
    volumes: usize,
    members: usize,
    /// Number of checks that were made, of all volumes and the machine.
    checks: usize,
}

pub(crate) fn run(arguments: &Doctor) -> Outcome {
    let mut findings = Vec::new();
    let mut looked = Looked::default();
    let machine = Machine::here();
    let servers = match arguments.targets.as_slice() {
        [] => {
            machine.look(&mut findings);
            looked.checks += machine::CHECKS.len();
            target::running().into_iter().map(|(_, status)| status).collect()
        }
        named => named
            .iter()
            .map(|name| Target::connect(name)?.status())
            .collect::<Result<Vec<_>, Failure>>()?,
    };
    for server in &servers {
        for status in &server.volumes {
            volume::look(server, status, &machine, &mut findings);
            looked.volumes += 1;
            looked.members += status.members.len();
            looked.checks += volume::CHECKS.len();
        }
    }
    // Findings of one volume stay in the order of the checks.
    findings.sort_by_key(|finding| finding.severity);
    let problems = findings.iter().filter(|it| it.severity == Severity::Problem).count();
    if arguments.json {
        let Looked { volumes, members, checks } = looked;
        print_json(&json!({
            "schema": "weft.doctor/1",
            "problems": problems,
            "looked": {"volumes": volumes, "members": members, "checks": checks},
            "findings": findings.iter().map(Finding::to_json).collect::<Value>(),
        }))?;
    } else {
        print(&findings, problems, looked)?;
    }
    Ok(if problems > 0 { Exit::Degraded } else { Exit::Done })
}

impl Finding {
    fn to_json(&self) -> Value {
        let Self { severity, id, volume, member, says, next } = self;
        let severity = severity.word();
        json!({
            "severity": severity, "id": id, "volume": volume, "member": member,
            "says": says, "next": next,
        })
    }
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Advice => "advice",
        }
    }
}

fn print(findings: &[Finding], problems: usize, looked: Looked) -> std::io::Result<()> {
    let mut out = stdout();
    for Finding { severity, id, volume, member, says, next } in findings {
        let of = volume.as_deref().unwrap_or("this machine");
        let of = member.as_ref().map_or(of.to_owned(), |member| format!("{of}, {member}"));
        let colour = if *severity == Severity::Problem { style::RED } else { style::BOLD };
        let (word, plain) = (severity.word(), style::PLAIN);
        writeln!(out, "{colour}{word}{plain} {of}: {id}: {says}\n    {next}")?;
    }
    let Looked { volumes, members, checks } = looked;
    let found = match problems {
        0 => "no problem".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    writeln!(out, "{found}: volumes {volumes}, members {members}, checks {checks}")?;
    out.flush()
}
