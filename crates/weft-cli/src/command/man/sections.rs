//! Sections of man pages that help texts do not have: examples, files, environment.
//!
//! A test parses each example. A test compares the table of files and variables in
//! docs/reference.md with the page.

/// Examples in the page of one command: command lines, each with its effect.
pub(super) struct Examples {
    /// Name of the command, or `weft` for the page of the program.
    pub(super) command: &'static str,
    pub(super) lines: &'static [(&'static str, &'static str)],
}

/// Examples of all pages.
pub(super) const EXAMPLES: &[Examples] = &[
    Examples {
        command: "weft",
        lines: &[
            ("weft demo", "Shows what weft does, on files in a temporary directory."),
            ("weft rescue /dev/sdb /dev/sdc", "Lists what is on the disks of a dead machine."),
            (
                "weft create -l 5 -n 4 --member-size 1G --name tour m0 m1 m2 m3",
                "Makes a RAID 5 on four new files.",
            ),
            ("weft serve m0 m1 m2 m3", "Serves it over NBD until Ctrl-C."),
        ],
    },
    Examples {
        command: "create",
        lines: &[
            (
                "weft create -l 5 -n 4 --member-size 1G --name tour m0 m1 m2 m3",
                "Makes a RAID 5 on four new files of 1 GiB.",
            ),
            (
                "weft create -l 1 -n 2 /dev/sdb1 missing",
                "Makes a mirror of one partition, to which the second is added later.",
            ),
        ],
    },
    Examples {
        command: "examine",
        lines: &[("weft examine /dev/sdb1", "Prints the superblock of a member.")],
    },
    Examples {
        command: "detail",
        lines: &[
            ("weft detail tour", "Prints the state of a running volume."),
            ("weft detail m0 m1 m2 m3", "Prints that of an array from its members."),
        ],
    },
    Examples {
        command: "assemble",
        lines: &[(
            "weft assemble m0 m1 m2 m3",
            "Prints which members would be used, with reasons; writes nothing.",
        )],
    },
    Examples {
        command: "rescue",
        lines: &[
            ("weft rescue /dev/sdb /dev/sdc", "Lists the arrays on two disks."),
            ("weft rescue /dev/sdb /dev/sdc --list", "Lists the volumes and files inside."),
            ("weft rescue /dev/sdb /dev/sdc --to files", "Copies the files out."),
            (
                "weft rescue --read-timeout 30 /dev/sdb /dev/sdc --to files",
                "Copies them past a disk that hangs: after 30 s the other one is asked.",
            ),
        ],
    },
    Examples {
        command: "build",
        lines: &[
            (
                "weft build --level 5 --chunk 64K --data-offset 1M d2.img missing d0.img --list",
                "Says what is inside of an array without superblocks that lacks a disk.",
            ),
            (
                "weft build -l 1 --overlay changes d0.img d1.img",
                "Serves such an array for writing; changes go to files in a folder.",
            ),
        ],
    },
    Examples {
        command: "image",
        lines: &[
            (
                "weft image /dev/sdd disk3.img",
                "Copies a dying disk; the same command goes on after an interruption.",
            ),
            (
                "weft image --read-timeout 30 --retries 2 /dev/sdd disk3.img",
                "Gives up reads after 30 s, and tries bad sectors twice more.",
            ),
        ],
    },
    Examples {
        command: "cat",
        lines: &[("weft cat m0 m1 m3 > array.img", "Copies a RAID 5 that lacks one member.")],
    },
    Examples {
        command: "ls",
        lines: &[
            ("weft ls /dev/sdb /dev/sdc", "Lists the file systems on two disks."),
            ("weft ls -l disk0.img disk1.img :nas/photos", "Lists a folder with sizes and times."),
            (
                "weft ls -R tour:tour/docs",
                "Lists a folder of the running volume tour, and all below.",
            ),
        ],
    },
    Examples {
        command: "cp",
        lines: &[
            (
                "weft cp /dev/sdb /dev/sdc :nas/photos/2026 photos",
                "Copies a folder from two disks to photos/2026.",
            ),
            (
                "weft cp disk0.img disk1.img ':nas/*.txt' letters",
                "Copies the text files of one folder.",
            ),
            ("weft cp tour:tour/docs .", "Copies a folder of the running volume tour."),
        ],
    },
    Examples {
        command: "mount",
        lines: &[
            (
                "weft mount /dev/sdb /dev/sdc /mnt/disks --files",
                "Shows the files on two disks in a folder until Ctrl-C.",
            ),
            (
                "weft mount m0 m1 m3 volumes",
                "Shows the array, its partitions and logical volumes as files to read.",
            ),
            ("weft mount tour volumes", "Shows what is in the running volume tour, to read."),
        ],
    },
    Examples {
        command: "serve",
        lines: &[
            ("weft serve m0 m1 m2 m3 --name tour", "Serves an array until Ctrl-C."),
            (
                "weft serve --overlay changes m0 m1 m2 m3",
                "Serves it with all changes in files below changes; members are only read.",
            ),
            (
                "weft serve m0 m1 m2 m3 --exec 'qemu-img info $uri'",
                "Serves it while a command runs.",
            ),
        ],
    },
    Examples {
        command: "daemon",
        lines: &[
            ("weft daemon --check", "Says what is wrong in the file, or which servers it starts."),
            ("weft daemon", "Serves all volumes of the file until SIGTERM."),
            ("weft daemon tour", "Serves one of them, in the foreground."),
            (
                "weft daemon tour -- --force-dirty",
                "Serves it once though it is dirty and degraded.",
            ),
        ],
    },
    Examples {
        command: "keys",
        lines: &[
            (
                "weft keys --server nas.example --client vm-host",
                "Makes an authority, and keys for a server and a client.",
            ),
            ("weft keys", "Shows which certificates there are, and when they end."),
        ],
    },
    Examples {
        command: "status",
        lines: &[("weft status", "Prints the running volumes in the form of /proc/mdstat.")],
    },
    Examples {
        command: "top",
        lines: &[
            ("weft top", "Shows all running volumes on the terminal; q quits, ? has help."),
            ("weft top --batch --count 1 tour", "Prints the figures of one second as text."),
        ],
    },
    Examples {
        command: "doctor",
        lines: &[
            ("weft doctor", "Says what is wrong with the running volumes and this machine."),
            ("weft doctor tour --json", "Prints what is wrong with one volume, for scripts."),
        ],
    },
    Examples {
        command: "monitor",
        lines: &[
            ("weft monitor --mail root", "Mails when a member fails, or a volume is gone."),
            ("weft monitor --oneshot --test --mail root", "Mails once for each volume, to try it."),
        ],
    },
    Examples {
        command: "metrics",
        lines: &[
            (
                "weft metrics --listen 127.0.0.1:9469",
                "Serves them to a Prometheus of this machine.",
            ),
            (
                "weft metrics > /var/lib/prometheus/node-exporter/weft.prom",
                "Leaves them for node_exporter.",
            ),
        ],
    },
    Examples {
        command: "fail",
        lines: &[("weft fail tour m3", "Marks a member faulty; the volume goes on without it.")],
    },
    Examples { command: "remove", lines: &[("weft remove tour m3", "Removes a faulty member.")] },
    Examples {
        command: "add",
        lines: &[("weft add tour m4", "Adds a spare, onto which a degraded array rebuilds.")],
    },
    Examples {
        command: "re-add",
        lines: &[("weft re-add tour m3", "Takes a former member back; what it missed is copied.")],
    },
    Examples {
        command: "replace",
        lines: &[
            ("weft replace tour m2", "Copies a dying member to a spare, which takes its slot."),
            ("weft replace tour m2 --with m4", "Takes this spare."),
        ],
    },
    Examples {
        command: "grow",
        lines: &[
            ("weft grow tour --raid-devices 5", "Spreads the array over five members."),
            ("weft grow tour --chunk 256K", "Copies the array to chunks of another size."),
            ("weft grow tour --size max", "Uses all of the members, which are larger now."),
        ],
    },
    Examples {
        command: "check",
        lines: &[("weft check tour", "Reads every stripe and compares parity with data.")],
    },
    Examples {
        command: "repair",
        lines: &[("weft repair tour", "Does the same, and corrects parity that differs.")],
    },
    Examples { command: "idle", lines: &[("weft idle tour", "Ends a check that is running.")] },
    Examples {
        command: "wait",
        lines: &[("weft wait tour", "Returns when no rebuild, resync or check runs.")],
    },
    Examples { command: "get", lines: &[("weft get tour stripe_cache_size", "Prints one knob.")] },
    Examples {
        command: "set",
        lines: &[
            ("weft set tour stripe_cache_bytes=64M", "Changes a knob until the volume stops."),
            ("weft set tour --member m0 scheduler=bfq", "Changes the queue of one member."),
            (
                "weft set tour scheduler=bfq --save",
                "Changes a knob, also in the file of weft daemon.",
            ),
        ],
    },
    Examples {
        command: "explain",
        lines: &[("weft explain tour 1M 64K", "Says where 64 KiB at 1 MiB are on the members.")],
    },
    Examples {
        command: "stop",
        lines: &[("weft stop tour", "Flushes, marks the array clean and ends the server.")],
    },
    Examples {
        command: "reproduce",
        lines: &[(
            "weft reproduce 004 --quick --runs 10",
            "Measures a published kernel patch on simulated disks.",
        )],
    },
    Examples {
        command: "sim",
        lines: &[(
            "weft sim job.fio --device ssd-nvme-dc-2019 -n 6 --sweep stripe_size=4K,64K,auto",
            "Compares three stripe sizes for a job of fio.",
        )],
    },
    Examples {
        command: "replay",
        lines: &[(
            "weft replay work.iolog -n 4 --device hdd-2011-7200",
            "Runs a recorded trace on four simulated disks.",
        )],
    },
    Examples {
        command: "merge",
        lines: &[("weft merge part1.json part2.json", "Joins the parts of a sweep.")],
    },
    Examples {
        command: "compare",
        lines: &[("weft compare before after", "Compares two sets of runs, case by case.")],
    },
    Examples {
        command: "demo",
        lines: &[("weft demo --patches", "The tour, and the effects of five kernel patches.")],
    },
    Examples {
        command: "completions",
        lines: &[(
            "weft completions bash > ~/.local/share/bash-completion/completions/weft",
            "Installs the completions of bash for one user.",
        )],
    },
    Examples {
        command: "man",
        lines: &[
            ("weft man ~/.local/share/man/man1", "Installs the pages for one user."),
            ("weft man | man -l -", "Shows the page of weft."),
        ],
    },
];

/// Files of running volumes and of the daemon, each with its purpose.
pub(super) const FILES: &[(&str, &str)] = &[
    ("$XDG_RUNTIME_DIR/weft, /run/weft", "Directory of the sockets of running volumes."),
    ("NAME.sock", "Control socket of the volume NAME, in that directory."),
    ("NAME.nbd", "Its socket for NBD clients, if serve has no --listen."),
    (
        "/etc/weft.toml, ~/.config/weft.toml",
        "Volumes of weft daemon, for root and for other users; with them count the files of the \
         folder weft.d beside it.",
    ),
    (
        "/var/lib/weft, ~/.local/state/weft",
        "Records of the checks of weft daemon, for root and for other users: a file for each array.",
    ),
    (
        "NAME.unwritten",
        "Mark of serve --write-back: data that was only in memory is lost if the server is killed.",
    ),
];

/// Environment variables, each with its effect.
pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "XDG_RUNTIME_DIR",
        "Sockets of volumes are in $XDG_RUNTIME_DIR/weft; without it in /run/weft as root, else in \
         weft-UID in the temporary directory, as weft then says.",
    ),
    ("TMPDIR", "The temporary directory, /tmp if it is not set."),
    (
        "NO_COLOR, CLICOLOR_FORCE, TERM, COLUMNS",
        "Colours, progress bars and width of the output on a terminal; TERM=dumb has no bars.",
    ),
    (
        "STATE_DIRECTORY, XDG_STATE_HOME",
        "Where the records of the checks of weft daemon are: $STATE_DIRECTORY, which systemd sets, \
         or weft in $XDG_STATE_HOME.",
    ),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC, LISTEN_FDS",
        "Set by systemd: where serve and daemon report that they are ready, how volumes are, and \
         that they live; the time within which they do; sockets to listen on.",
    ),
];

/// Whether a command uses running volumes, so that its page has the sections FILES and ENVIRONMENT.
pub(super) fn is_of_volumes(command: &clap::Command) -> bool {
    let has_target = command.get_arguments().any(|arg| arg.get_id() == "target");
    has_target
        || ["cp", "detail", "explain", "daemon", "ls", "mount", "serve", "status", "weft"]
            .contains(&command.get_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    /// Words of a shell's line up to a pipe or redirection; single quotes are the only quotes.
    fn words(line: &str) -> Vec<String> {
        let line =
            line.split([" | ", " > "].into_iter().find(|it| line.contains(it)).unwrap_or("\0"));
        let line = line.into_iter().next().unwrap_or_default();
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    #[test]
    fn every_command_has_examples_that_parse_and_a_wrong_one_does_not() {
        let cli = crate::Cli::command();
        let mut commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        commands.insert(0, "weft");
        let named: Vec<&str> = EXAMPLES.iter().map(|examples| examples.command).collect();
        assert_eq!(named, commands);
        for Examples { command, lines } in EXAMPLES {
            assert!(!lines.is_empty(), "{command}");
            for (line, does) in *lines {
                let words = words(line);
                let parsed = crate::Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert!(*command == "weft" || words[1] == *command, "{line}");
                assert!(does.ends_with('.'), "{line}: {does}");
            }
        }
        assert!(crate::Cli::try_parse_from(words("weft serve --no-such-option m0")).is_err());
        assert_eq!(words("weft a 'b c' > d"), ["weft", "a", "b c"]);
    }
}
