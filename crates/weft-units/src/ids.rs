//! Indices of members, slots, volumes and clients, as types that cannot be mixed up.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index into a table.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index! {
    /// Index of a member among the members of all volumes of an engine, in order of configuration.
    /// This number is independent of the slot that the member has in its array.
    MemberIndex(u16)
}
index! {
    /// Position of a member in its array: md's role, an entry of `dev_roles`.
    Slot(u16)
}
index! {
    /// Index of a volume of the engine, in order of configuration.
    VolumeId(u16)
}
index! {
    /// Number of a client connection, which the driver assigns. A number is not reused while
    /// requests or frames of its connection are outstanding.
    ClientId(u32)
}
/// Group of clients, by number. Schedulers share a member between the groups first, then between
/// the clients of each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(u8);

impl Group {
    /// The root group: clients that are in no group. Each of these clients has a share of its own,
    /// as if it were a group.
    pub const ROOT: Self = Self(0);
    /// Highest number of a group, which is also the number of groups without the root group.
    pub const MAX: u8 = 15;

    /// Creates the group with this number; `None` unless it is from 1 to [`Group::MAX`].
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if 1 <= number && number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// Number of the group; 0 is the root.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

index! {
    /// Number of an entry of the stripe cache.
    StripeId(u32)
}

/// Number of a full stripe: the chunk number that its chunks have on their members, counted from
/// the start of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullStripe(pub u64);
