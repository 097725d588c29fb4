//! A name server for tests, over UDP on loopback.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use postrider_transport::{DnsOptions, Nameservers};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::PATIENT;

/// The answer of a name server.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// These addresses, with this time to live in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// An alias, and the addresses of the alias.
    Alias(&'static str, Vec<IpAddr>),
    /// Only a response code.
    Code(ResponseCode),
    /// No answer.
    Silence,
}

impl Reply {
    pub(crate) fn addresses(texts: &[&str]) -> Self {
        Reply::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect(), 60)
    }
}

/// A running name server; it stops on drop.
pub(crate) struct Nameserver {
    pub(crate) address: SocketAddr,
    questions: Arc<AtomicUsize>,
    answering: AbortHandle,
}

impl Nameserver {
    /// Answers each address query with the result of `reply`, which gets the name and the number of
    /// earlier queries. Queries for the root's servers are answered too.
    pub(crate) async fn start<R>(reply: R) -> Self
    where
        R: Fn(&str, usize) -> Reply + Send + 'static,
    {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let questions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&questions);
        let answering = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer).await {
                let question = Message::from_vec(&buffer[..bytes]).unwrap();
                let query = question.queries[0].clone();
                let name = query.name().to_ascii();
                let is_v4 = query.query_type() == RecordType::A;
                let reply = reply(&name, counter.fetch_add(usize::from(is_v4), SeqCst));
                if let Some(answer) = answer(&question, query.name(), query.query_type(), reply) {
                    socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
                }
            }
        });
        Nameserver { address, questions, answering: answering.abort_handle() }
    }

    /// How many queries for an IPv4 address there were.
    pub(crate) fn questions(&self) -> usize {
        self.questions.load(SeqCst)
    }

    /// Options that use only this server and cache nothing.
    pub(crate) fn options(&self) -> DnsOptions {
        DnsOptions {
            nameservers: Nameservers::Only(vec![self.address]),
            timeout: PATIENT,
            liveness_timeout: PATIENT,
            ttl_min: Duration::ZERO,
            ttl_max: Duration::ZERO,
            ..DnsOptions::default()
        }
    }
}

impl Drop for Nameserver {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

fn answer(question: &Message, name: &Name, kind: RecordType, reply: Reply) -> Option<Message> {
    let mut answer = Message::response(question.id, question.op_code);
    answer.metadata.message_type = MessageType::Response;
    answer.metadata.recursion_available = true;
    answer.add_query(question.queries[0].clone());
    let (owner, addresses, ttl) = match reply {
        Reply::Silence => return None,
        Reply::Code(code) => {
            answer.metadata.response_code = code;
            return Some(answer);
        }
        Reply::Addresses(addresses, ttl) => (name.clone(), addresses, ttl),
        Reply::Alias(alias, addresses) => {
            let alias = Name::from_ascii(alias).unwrap();
            let data = RData::CNAME(CNAME(alias.clone()));
            answer.add_answer(Record::from_rdata(name.clone(), 60, data));
            (alias, addresses, 60)
        }
    };
    for address in addresses {
        let data = match (address, kind) {
            (IpAddr::V4(v4), RecordType::A) => RData::A(A(v4)),
            (IpAddr::V6(v6), RecordType::AAAA) => RData::AAAA(AAAA(v6)),
            _ => continue,
        };
        answer.add_answer(Record::from_rdata(owner.clone(), ttl, data));
    }
    Some(answer)
}
