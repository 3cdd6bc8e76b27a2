//! The table of subcommands.

mod add;
mod assemble;
mod cat;
mod check;
mod compare;
mod completions;
mod cp;
mod create;
mod daemon;
mod demo;
mod detail;
mod doctor;
mod examine;
mod explain;
mod fail;
mod get;
mod grow;
mod idle;
mod image;
mod keys;
mod ls;
mod man;
mod merge;
mod metrics;
mod monitor;
mod mount;
mod re_add;
mod remove;
mod repair;
mod replace;
mod replay;
mod reproduce;
mod rescue;
mod serve;
mod set;
mod sim;
mod status;
mod stop;
mod top;
mod wait;

use weft_terminal::outcome::Outcome;

use clap::Subcommand;

/// Subcommands, in the order in which the life of a volume needs them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Create),
    Examine(examine::Examine),
    Detail(detail::Detail),
    Assemble(assemble::Assemble),
    Rescue(rescue::Rescue),
    Build(Box<serve::build::Build>),
    Image(image::Image),
    Cat(cat::Cat),
    Ls(ls::Ls),
    Cp(cp::Cp),
    Mount(mount::Mount),
    Serve(Box<serve::Serve>),
    Daemon(daemon::Daemon),
    Keys(keys::KeysOf),
    Status(status::StatusOf),
    Top(top::Top),
    Doctor(doctor::Doctor),
    Monitor(monitor::Monitor),
    Metrics(metrics::Metrics),
    Fail(fail::Fail),
    Remove(remove::Remove),
    Add(add::Add),
    ReAdd(re_add::ReAdd),
    Replace(replace::Replace),
    Grow(grow::Grow),
    Check(check::Check),
    Repair(repair::Repair),
    Idle(idle::Idle),
    Wait(wait::Wait),
    Get(get::Get),
    Set(set::Set),
    Explain(explain::Explain),
    Stop(stop::Stop),
    Reproduce(reproduce::Reproduce),
    Sim(Box<sim::Sim>),
    Replay(Box<replay::Replay>),
    Merge(merge::Merge),
    Compare(compare::Compare),
    Demo(demo::Demo),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Runs a subcommand. `cli` builds the description of the whole command line, for help texts.
pub(crate) fn run(command: &Command, cli: fn() -> clap::Command) -> Outcome {
    match command {
        Command::Create(arguments) => create::run(arguments),
        Command::Examine(arguments) => examine::run(arguments),
        Command::Detail(arguments) => detail::run(arguments),
        Command::Assemble(arguments) => assemble::run(arguments),
        Command::Rescue(arguments) => rescue::run(arguments),
        Command::Build(arguments) => serve::build::run(arguments),
        Command::Image(arguments) => image::run(arguments),
        Command::Cat(arguments) => cat::run(arguments),
        Command::Ls(arguments) => ls::run(arguments),
        Command::Cp(arguments) => cp::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Daemon(arguments) => daemon::run(arguments, named(&cli(), "serve")),
        Command::Keys(arguments) => keys::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Monitor(arguments) => monitor::run(arguments),
        Command::Metrics(arguments) => metrics::run(arguments),
        Command::Fail(arguments) => fail::run(arguments),
        Command::Remove(arguments) => remove::run(arguments),
        Command::Add(arguments) => add::run(arguments),
        Command::ReAdd(arguments) => re_add::run(arguments),
        Command::Replace(arguments) => replace::run(arguments),
        Command::Grow(arguments) => grow::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Repair(arguments) => repair::run(arguments),
        Command::Idle(arguments) => idle::run(arguments),
        Command::Wait(arguments) => wait::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::Set(arguments) => set::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Stop(arguments) => stop::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Merge(arguments) => merge::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments, cli()),
    }
}

/// clap command of the subcommand `name`. The words that it parses begin with that name.
fn named(cli: &clap::Command, name: &str) -> clap::Command {
    cli.find_subcommand(name).expect("it is in the table").clone()
}
