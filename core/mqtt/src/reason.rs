//! Reason codes.

use crate::PacketKind;

macro_rules! reason_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal [$($kind:ident)*],)*) => {
        /// Reason code (MQTT 5.0 section 2.4). Codes below 0x80 mean success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $($(#[doc = $doc])+ $name = $code,)*
        }

        impl ReasonCode {
            /// All codes, ascending.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code with this number, if the standard has it.
            pub const fn from_u8(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            const fn kinds(self) -> &'static [PacketKind] {
                match self {
                    $(Self::$name => &[$(PacketKind::$kind,)*],)*
                }
            }
        }
    };
}

reason_codes! {
    /// Success; in DISCONNECT normal disconnection; in SUBACK granted QoS 0.
    Success = 0x00 [ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth],
    /// Granted QoS 1.
    GrantedQoS1 = 0x01 [SubAck],
    /// Granted QoS 2.
    GrantedQoS2 = 0x02 [SubAck],
    /// The client leaves and wants its will published.
    DisconnectWithWill = 0x04 [Disconnect],
    /// The message was accepted, but nobody subscribes.
    NoMatchingSubscribers = 0x10 [PubAck PubRec],
    /// There was no such subscription.
    NoSubscriptionExisted = 0x11 [UnsubAck],
    /// The authentication goes on.
    ContinueAuthentication = 0x18 [Auth],
    /// The client asks to authenticate again.
    ReAuthenticate = 0x19 [Auth],
    /// No other code says it, or it shall not be said.
    UnspecifiedError = 0x80 [ConnAck PubAck PubRec SubAck UnsubAck Disconnect],
    /// The packet does not follow the format.
    MalformedPacket = 0x81 [ConnAck Disconnect],
    /// The packet does not belong here.
    ProtocolError = 0x82 [ConnAck Disconnect],
    /// Valid, but this implementation does not take it.
    ImplementationSpecificError = 0x83 [ConnAck PubAck PubRec SubAck UnsubAck Disconnect],
    /// The server does not speak this version.
    UnsupportedProtocolVersion = 0x84 [ConnAck],
    /// The server does not allow this client identifier.
    ClientIdentifierNotValid = 0x85 [ConnAck],
    /// User name or password is wrong.
    BadUserNameOrPassword = 0x86 [ConnAck],
    /// Not permitted.
    NotAuthorized = 0x87 [ConnAck PubAck PubRec SubAck UnsubAck Disconnect],
    /// The server is not available.
    ServerUnavailable = 0x88 [ConnAck],
    /// The server has too much to do.
    ServerBusy = 0x89 [ConnAck Disconnect],
    /// The client is banned.
    Banned = 0x8a [ConnAck],
    /// The server is shutting down.
    ServerShuttingDown = 0x8b [Disconnect],
    /// The authentication method is not supported or not the one in use.
    BadAuthenticationMethod = 0x8c [ConnAck Disconnect],
    /// Nothing came for one and a half times the keep alive.
    KeepAliveTimeout = 0x8d [Disconnect],
    /// Another connection uses this client identifier now.
    SessionTakenOver = 0x8e [Disconnect],
    /// The topic filter is well formed, but not accepted.
    TopicFilterInvalid = 0x8f [SubAck UnsubAck Disconnect],
    /// The topic name is well formed, but not accepted.
    TopicNameInvalid = 0x90 [ConnAck PubAck PubRec Disconnect],
    /// The packet identifier is in use.
    PacketIdentifierInUse = 0x91 [PubAck PubRec SubAck UnsubAck],
    /// The packet identifier is not known.
    PacketIdentifierNotFound = 0x92 [PubRel PubComp],
    /// More unacknowledged publications than the receive maximum.
    ReceiveMaximumExceeded = 0x93 [Disconnect],
    /// The topic alias is 0, above the maximum or unknown.
    TopicAliasInvalid = 0x94 [Disconnect],
    /// The packet is larger than the receiver takes.
    PacketTooLarge = 0x95 [ConnAck Disconnect],
    /// Data comes too fast.
    MessageRateTooHigh = 0x96 [Disconnect],
    /// A limit is reached.
    QuotaExceeded = 0x97 [ConnAck PubAck PubRec SubAck Disconnect],
    /// An administrator closed the connection.
    AdministrativeAction = 0x98 [Disconnect],
    /// The payload is not what its format indicator says.
    PayloadFormatInvalid = 0x99 [ConnAck PubAck PubRec Disconnect],
    /// The server does not retain messages.
    RetainNotSupported = 0x9a [ConnAck Disconnect],
    /// The server does not take this quality of service.
    QoSNotSupported = 0x9b [ConnAck Disconnect],
    /// Use another server for now.
    UseAnotherServer = 0x9c [ConnAck Disconnect],
    /// Use another server from now on.
    ServerMoved = 0x9d [ConnAck Disconnect],
    /// The server has no shared subscriptions.
    SharedSubscriptionsNotSupported = 0x9e [SubAck Disconnect],
    /// Connections come too fast.
    ConnectionRateExceeded = 0x9f [ConnAck Disconnect],
    /// The connection has lasted as long as it may.
    MaximumConnectTime = 0xa0 [Disconnect],
    /// The server has no subscription identifiers.
    SubscriptionIdentifiersNotSupported = 0xa1 [SubAck Disconnect],
    /// The server has no wildcard subscriptions.
    WildcardSubscriptionsNotSupported = 0xa2 [SubAck Disconnect],
}

impl ReasonCode {
    /// The number of the code.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// Whether the code is 0x80 or above.
    pub const fn is_error(self) -> bool {
        self.as_u8() >= 0x80
    }

    /// Whether the standard lists the code for this packet (MQTT 5.0 section 2.4, table 2-6).
    pub fn valid_for(self, kind: PacketKind) -> bool {
        self.kinds().contains(&kind)
    }

    /// The CONNACK return code of MQTT 3.1.1 (section 3.2.2.3) that comes closest: 0 to 5. Reason codes without counterpart become 3,
    /// server unavailable.
    pub const fn v311_connect_code(self) -> u8 {
        match self.as_u8() {
            0x00 => 0,
            0x84 => 1,
            0x85 => 2,
            0x86 | 0x8c => 4,
            0x87 | 0x8a => 5,
            _ => 3,
        }
    }

    /// The code for a CONNACK return code of MQTT 3.1.1 (section 3.2.2.3).
    pub const fn from_v311_connect_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Success),
            1 => Some(Self::UnsupportedProtocolVersion),
            2 => Some(Self::ClientIdentifierNotValid),
            3 => Some(Self::ServerUnavailable),
            4 => Some(Self::BadUserNameOrPassword),
            5 => Some(Self::NotAuthorized),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-14
    #[test]
    fn numbers_and_codes_convert_both_ways() {
        for number in 0..=u8::MAX {
            if let Some(code) = ReasonCode::from_u8(number) {
                assert_eq!(code.as_u8(), number);
            }
        }
        assert_eq!(ReasonCode::ALL.len(), 43);
        assert!(ReasonCode::ALL.iter().all(|code| ReasonCode::from_u8(code.as_u8()) == Some(*code)));
        assert!(ReasonCode::UnspecifiedError.is_error());
        assert!(!ReasonCode::ReAuthenticate.is_error());
    }

    /// MQ-14
    #[test]
    fn codes_belong_to_packets() {
        assert!(ReasonCode::GrantedQoS2.valid_for(PacketKind::SubAck));
        assert!(!ReasonCode::GrantedQoS2.valid_for(PacketKind::UnsubAck));
        assert!(ReasonCode::PacketIdentifierNotFound.valid_for(PacketKind::PubRel));
        let count = |kind| ReasonCode::ALL.iter().filter(|code| code.valid_for(kind)).count();
        assert_eq!(count(PacketKind::ConnAck), 22);
        assert_eq!(count(PacketKind::PubAck), 9);
        assert_eq!(count(PacketKind::SubAck), 12);
        assert_eq!(count(PacketKind::UnsubAck), 7);
        assert_eq!(count(PacketKind::Disconnect), 30);
        assert_eq!(count(PacketKind::Auth), 3);
    }

    /// MQ-01
    #[test]
    fn old_return_codes_convert_both_ways() {
        for code in 0..=5 {
            assert_eq!(ReasonCode::from_v311_connect_code(code).unwrap().v311_connect_code(), code);
        }
        assert_eq!(ReasonCode::from_v311_connect_code(6), None);
        assert!(
            ReasonCode::ALL
                .iter()
                .all(|code| (code.v311_connect_code() == 0) == (code.as_u8() == 0) || !code.is_error())
        );
    }
}
