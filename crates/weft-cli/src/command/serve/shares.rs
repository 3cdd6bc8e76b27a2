//! Weights, I/O classes and groups of clients on the command line of `weft serve`.

use std::path::Path;

use weft_engine::Class;
use weft_engine::knobs::{GroupWeights, SchedulerKind};
use weft_export::ClientShare;
use weft_terminal::outcome::Failure;
use weft_units::Group;

use super::Serve;

/// One `--client` argument: the clients that it names, and the weight, class and group that it sets
/// for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharesArg {
    clients: String,
    weight: Option<u16>,
    class: Option<Class>,
    group: Option<String>,
}

/// One `--group` argument: a group and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupArg {
    pub(super) name: String,
    weight: u16,
}

/// Shares of the clients of a volume, by the name or socket with which they connect.
pub(super) struct Shares {
    /// Share of clients that connect to the volume's own export name.
    pub(super) main: ClientShare,
    /// Shares of clients that connect to additional names of the export, by name.
    pub(super) also: Vec<(String, ClientShare)>,
    pub(super) sockets: Vec<(String, ClientShare)>,
}

impl SharesArg {
    /// Parses `CLIENTS=weight:W,class:CLASS[:LEVEL],group:NAME`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let form = "expected CLIENTS=weight:W,class:CLASS[:LEVEL],group:NAME, or some of these";
        // A path may contain `=`, but a share does not: the last one separates them.
        let (clients, share) = text.rsplit_once('=').ok_or(form)?;
        if clients.is_empty() {
            return Err(form.to_owned());
        }
        let mut parsed =
            Self { clients: clients.to_owned(), weight: None, class: None, group: None };
        for part in share.split(',') {
            match part.split_once(':') {
                Some(("weight", value)) if parsed.weight.is_none() => {
                    parsed.weight = Some(weight(value)?);
                }
                Some(("class", value)) if parsed.class.is_none() => {
                    parsed.class = Some(class(value)?);
                }
                Some(("group", value)) if parsed.group.is_none() && !value.is_empty() => {
                    parsed.group = Some(value.to_owned());
                }
                _ => return Err(format!("found {part:?}; {form}")),
            }
        }
        Ok(parsed)
    }

    fn over(&self, default: ClientShare, groups: &[GroupArg]) -> Result<ClientShare, String> {
        let place = |name: &String| {
            let place = groups.iter().position(|group| group.name == *name);
            let group = place.and_then(|at| Group::new(u8::try_from(at + 1).ok()?));
            group.ok_or_else(|| format!("group: found {name}, expected one that --group names"))
        };
        Ok(ClientShare {
            group: self.group.as_ref().map_or(Ok(default.group), place)?,
            class: self.class.unwrap_or(default.class),
            weight: self.weight.unwrap_or(default.weight),
        })
    }

    /// Name of the socket that the argument names, in the form in which a listener describes
    /// itself; `None` if the argument is the name of an export.
    fn socket(&self) -> Option<String> {
        if self.clients.contains('/') {
            let path = std::path::absolute(Path::new(&self.clients)).ok()?;
            return Some(path.display().to_string());
        }
        let address: std::net::SocketAddr = self.clients.parse().ok()?;
        Some(address.to_string())
    }
}

impl Shares {
    /// Shares that the command line gives to the clients of a volume with this export name.
    pub(super) fn of(arguments: &Serve, export: &str) -> Result<Self, String> {
        let (class, weight) = (arguments.class.unwrap_or_default(), arguments.weight.unwrap_or(0));
        let main = ClientShare { class, weight, group: Group::ROOT };
        Self::new(main, &arguments.clients, &arguments.groups, export)
    }

    fn new(
        main: ClientShare,
        clients: &[SharesArg],
        groups: &[GroupArg],
        export: &str,
    ) -> Result<Self, String> {
        let mut shares = Self { main, also: Vec::new(), sockets: Vec::new() };
        for given in clients {
            let share = given.over(main, groups)?;
            let (list, name) = match given.socket() {
                Some(socket) => (&mut shares.sockets, socket),
                None if given.clients == export => {
                    shares.main = share;
                    continue;
                }
                None => (&mut shares.also, given.clients.clone()),
            };
            list.push((name, share));
        }
        Ok(shares)
    }
}

impl GroupArg {
    /// Parses `NAME=weight:W`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = || format!("found {text:?}, expected NAME=weight:W");
        let (name, share) = text.split_once('=').ok_or_else(expected)?;
        let value = share.strip_prefix("weight:").ok_or_else(expected)?;
        if name.is_empty() || name.contains([',', ':']) {
            return Err(format!("found {name:?}, expected a name without commas and colons"));
        }
        Ok(Self { name: name.to_owned(), weight: weight(value)? })
    }

    /// Weights of all groups, in the order of the groups, for the engine. Two groups with the same
    /// name, or too many groups, are an error.
    pub(super) fn weights(groups: &[Self]) -> Result<GroupWeights, String> {
        for (at, group) in groups.iter().enumerate() {
            if groups[..at].iter().any(|other| other.name == group.name) {
                return Err(format!("--group {}: found twice, expected once", group.name));
            }
        }
        let weights: Vec<u16> = groups.iter().map(|group| group.weight).collect();
        let count = groups.len();
        GroupWeights::of(&weights).ok_or_else(|| {
            format!("--group: found {count} groups, expected at most {}", Group::MAX)
        })
    }
}

/// Whether client weights have an effect: the scheduler that `settings` select at startup is BFQ.
pub(super) fn heeded(settings: &[String]) -> bool {
    let scheduler = settings.iter().rev().find_map(|setting| setting.strip_prefix("scheduler="));
    scheduler == Some(SchedulerKind::Bfq.name())
}

/// Refuses two shares for the same clients: one of them would have no effect.
///
/// # Errors
/// Two shares have the same clients.
pub(super) fn refuse_twice(given: &[SharesArg]) -> Result<(), Failure> {
    let name = |of: &SharesArg| of.socket().unwrap_or_else(|| of.clients.clone());
    for (at, one) in given.iter().enumerate() {
        if given[..at].iter().any(|other| name(other) == name(one)) {
            let clients = &one.clients;
            return Err(Failure::usage(format!(
                "--client {clients}: found twice, expected once, with weight and class in one, as in \
                 {clients}=weight:200,class:be:2"
            )));
        }
    }
    Ok(())
}

/// Parses the weight of a client or group, 1 to 1000.
pub(super) fn weight(text: &str) -> Result<u16, String> {
    let weight = text.parse().ok().filter(|weight| (1..=1000).contains(weight));
    weight.ok_or_else(|| format!("weight: found {text:?}, expected 1 to 1000"))
}

/// Parses an I/O class.
pub(super) fn class(text: &str) -> Result<Class, String> {
    let expected = || {
        format!(
            "class: found {text:?}, expected none, idle, be, be:LEVEL, rt or rt:LEVEL with a \
             LEVEL of 0 (high) to 7"
        )
    };
    let (word, level) = text.split_once(':').map_or((text, None), |(word, it)| (word, Some(it)));
    let number = level.map_or(Some(4), |it| it.parse().ok().filter(|level| *level <= 7));
    match (word, level, number) {
        ("none", None, _) => Ok(Class::None),
        ("idle", None, _) => Ok(Class::Idle),
        ("be", _, Some(level)) => Ok(Class::BestEffort(level)),
        ("rt", _, Some(level)) => Ok(Class::RealTime(level)),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_and_what_is_wrong_is_named() {
        let parsed = SharesArg::parse("vm=weight:400,class:be:4").unwrap();
        let (weight, class) = (Some(400), Some(Class::BestEffort(4)));
        assert_eq!(parsed, SharesArg { clients: "vm".into(), weight, class, group: None });
        assert_eq!(SharesArg::parse("vm=group:gold").unwrap().group.as_deref(), Some("gold"));
        let parsed = SharesArg::parse("/run/a=b.sock=class:idle").unwrap();
        assert_eq!((parsed.clients.as_str(), parsed.class), ("/run/a=b.sock", Some(Class::Idle)));
        for (text, named) in [
            ("vm", "expected CLIENTS="),
            ("=weight:4", "expected CLIENTS="),
            ("vm=weight:0", "found \"0\", expected 1 to 1000"),
            ("vm=weight:1001", "found \"1001\""),
            ("vm=weight:4,weight:5", "found \"weight:5\""),
            ("vm=class:be:8", "found \"be:8\""),
            ("vm=class:idle:3", "found \"idle:3\""),
            ("vm=class:fast", "expected none, idle, be"),
            ("vm=nice:3", "found \"nice:3\""),
            ("vm=group:", "found \"group:\""),
        ] {
            let error = SharesArg::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn an_export_s_clients_a_socket_s_and_all_others_are_told_apart() {
        let main = ClientShare { class: Class::RealTime(2), weight: 50, group: Group::ROOT };
        let given = ["v=weight:7", "vm=weight:400", "/run/s=class:idle", "127.0.0.1:9=weight:9"];
        let given = given.map(|text| SharesArg::parse(text).unwrap());
        let shares = Shares::new(main, &given, &[], "v").unwrap();
        assert_eq!(shares.main, ClientShare { weight: 7, ..main });
        assert_eq!(shares.also, [("vm".to_owned(), ClientShare { weight: 400, ..main })]);
        let sockets = [
            ("/run/s".to_owned(), ClientShare { class: Class::Idle, ..main }),
            ("127.0.0.1:9".to_owned(), ClientShare { weight: 9, ..main }),
        ];
        assert_eq!(shares.sockets, sockets);
    }

    #[test]
    fn weights_are_heeded_by_bfq_alone_and_the_last_setting_holds() {
        for (settings, expected) in [
            (&[][..], false),
            (&["scheduler=mq-deadline"], false),
            (&["scheduler=bfq", "queue_depth=4"], true),
            (&["scheduler=bfq", "scheduler=none"], false),
        ] {
            let settings: Vec<String> = settings.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(heeded(&settings), expected, "{settings:?}");
        }
    }

    #[test]
    fn clients_that_are_named_twice_are_refused() {
        for (one, other, refused) in [
            ("vm=weight:400", "vm=class:idle", true),
            ("/run/s=weight:4", "/run/s=weight:5", true),
            ("vm=weight:400", "vn=weight:400", false),
            ("vm=weight:4", "/run/vm=weight:4", false),
        ] {
            let given = [one, other].map(|it| SharesArg::parse(it).unwrap());
            assert_eq!(refuse_twice(&given).is_err(), refused, "{one} {other}");
        }
    }

    #[test]
    fn clients_are_in_a_group_that_was_named_and_groups_have_weights() {
        let groups = ["gold=weight:300", "tin=weight:50"].map(|it| GroupArg::parse(it).unwrap());
        let main = ClientShare::default();
        let of = |text: &str| {
            let given = [SharesArg::parse(text).unwrap()];
            Shares::new(main, &given, &groups, "v").map(|shares| shares.main)
        };
        let tin = Group::new(2).unwrap();
        assert_eq!(of("v=group:tin,weight:7"), Ok(ClientShare { group: tin, weight: 7, ..main }));
        assert_eq!(of("v=weight:7").unwrap().group, Group::ROOT);
        assert!(of("v=group:lead").unwrap_err().contains("found lead, expected one that --group"));
        assert_eq!(GroupArg::weights(&groups).unwrap().given(), [300, 50]);
        let twice = [&groups[..], &groups[..1]].concat();
        assert!(GroupArg::weights(&twice).unwrap_err().contains("gold: found twice"));
        let many: Vec<_> = (0..16).map(|at| GroupArg { name: at.to_string(), weight: 1 }).collect();
        assert!(GroupArg::weights(&many).unwrap_err().contains("found 16 groups"));
        for (text, named) in [
            ("gold", "expected NAME=weight:W"),
            ("gold=300", "expected NAME=weight:W"),
            ("=weight:3", "expected a name"),
            ("a,b=weight:3", "expected a name"),
            ("gold=weight:0", "expected 1 to 1000"),
        ] {
            let error = GroupArg::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
