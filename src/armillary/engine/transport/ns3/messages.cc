// Messages over an ns-3 network: compiled by cppyy after parts.cc, see library.py. Times are ps; a link is one way.

#include <deque>
#include <string>
#include <vector>

namespace armillary
{

struct Message
{
    int64_t cookie;
    int64_t unsent;
    int64_t missing;
};

/// One network, its messages, and the time; ns-3 has one simulator per process, so there is one at a time.
class Simulation
{
  public:
    /// `protocol` is "udp", "udp-fair" or the name of ns-3's congestion control; `segment` is bytes of payload in a packet.
    Simulation(const std::string& protocol, uint32_t segment, uint32_t window, int64_t minRto, bool sack, uint32_t mark)
        : m_fair(protocol == "udp-fair"), m_udp(m_fair || protocol == "udp"), m_segment(segment), m_mark(mark)
    {
        Config::Reset();
        Config::SetDefault("ns3::Ipv4L3Protocol::DefaultTtl", UintegerValue(TTL));
        if (!m_udp)
        {
            const uint32_t most = 1 << 30;
            Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::" + protocol)));
            Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
            Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(most));
            Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(most));
            Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(window));
            Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(PicoSeconds(minRto)));
            Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false)); // one of the ways of RFC 9438 section 4.10
            Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
            Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(NanoSeconds(1)));
        }
    }

    ~Simulation()
    {
        Simulator::Destroy();
    }

    void AddNode()
    {
        Ptr<Node> node = CreateObject<Node>();
        Ptr<ArpL3Protocol> arp = CreateObject<ArpL3Protocol>();
        Ptr<Ipv4L3Protocol> ipv4 = CreateObject<Ipv4L3Protocol>();
        Ptr<TrafficControlLayer> control = CreateObject<TrafficControlLayer>();
        node->AggregateObject(arp);
        node->AggregateObject(ipv4);
        node->AggregateObject(CreateObject<Icmpv4L4Protocol>());
        m_ways.push_back(CreateObject<Ways>());
        ipv4->SetRoutingProtocol(m_ways.back());
        node->AggregateObject(control);
        arp->SetTrafficControl(control);
        node->AggregateObject(CreateObject<UdpL4Protocol>());
        node->AggregateObject(CreateObject<TcpL4Protocol>());
        m_nodes.push_back(node);
        m_sockets.push_back(nullptr);
    }

    /// A channel of its own for each direction: bandwidths, latencies and buffers may differ.
    void AddLink(uint32_t tail, uint32_t head, uint64_t bitsPerSecond, int64_t latency, int64_t buffer)
    {
        Ptr<PointToPointChannel> channel = CreateObject<PointToPointChannel>();
        channel->SetAttribute("Delay", TimeValue(PicoSeconds(latency)));
        Ptr<LinkQueue> queue = CreateObject<LinkQueue>(buffer, m_mark);
        queue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, 0xFFFFFFFF));
        Ptr<PointToPointNetDevice> from = AddDevice(tail, channel, queue);
        AddDevice(head, channel, CreateObject<LinkQueue>(0, 0));
        from->SetDataRate(DataRate(bitsPerSecond));
        const uint32_t number = m_links.size();
        if (m_fair)
        {
            queue->source = [this, number]() { return SendUdp(m_links[number]); };
        }
        m_links.push_back({tail, head, bitsPerSecond, from, channel, queue, {}});
    }

    void ChangeLink(uint32_t link, uint64_t bitsPerSecond, int64_t latency)
    {
        m_links[link].bitsPerSecond = bitsPerSecond;
        m_links[link].device->SetDataRate(DataRate(bitsPerSecond));
        m_links[link].channel->SetAttribute("Delay", TimeValue(PicoSeconds(latency)));
    }

    /// The links of a route, and those that answers take, in the order taken; with TCP it is a connection.
    void AddRoute(uint32_t route, const std::vector<uint32_t>& there, const std::vector<uint32_t>& back)
    {
        m_routes[route] = {route, there.front(), m_links[there.front()].tail, m_links[there.back()].head, nullptr, {}, {}};
        AddWay(THERE + route, there);
        if (!m_udp)
        {
            AddWay(BACK + route, back);
            Connect(m_routes[route]);
        }
    }

    /// Let a message leave at `now`.
    void Inject(int64_t cookie, uint32_t route, int64_t size, int64_t now)
    {
        const uint32_t number = m_messages.size();
        size = m_udp ? size : std::max<int64_t>(size, 1); // TCP sends no empty segment
        m_messages.push_back({cookie, size, size});
        const Time wait = PicoSeconds(now) - Simulator::Now();
        if (m_udp)
        {
            Simulator::Schedule(wait, [this, number, route]() { QueueUdp(number, m_routes.at(route)); });
        }
        else
        {
            Simulator::Schedule(wait, [this, number, route]() { StartTcp(number, m_routes.at(route)); });
        }
    }

    /// Run up to and including `limit` (none if negative), or the end of the first ps at which messages arrive; false: to the end.
    bool Advance(int64_t limit)
    {
        EventId end;
        m_stopped = false;
        if (limit >= 0)
        {
            end = Simulator::Schedule(PicoSeconds(limit) - Simulator::Now(), [this]() { StopAfterThis(); });
        }
        if (m_arrived.empty())
        {
            Simulator::Run();
        }
        end.Cancel();
        return m_stopped;
    }

    int64_t Now() const { return Simulator::Now().GetPicoSeconds(); }

    /// The cookie of the next message that arrived, or -1.
    int64_t Take()
    {
        if (m_arrived.empty())
        {
            return -1;
        }
        const int64_t cookie = m_arrived.front();
        m_arrived.pop_front();
        return cookie;
    }

    /// Of every link: bytes, most bytes that waited, packets dropped, packets marked.
    std::vector<int64_t> Use() const
    {
        std::vector<int64_t> use;
        for (const Link& link : m_links)
        {
            const Ptr<LinkQueue>& queue = link.queue;
            use.insert(use.end(), {queue->bytes, queue->depth, queue->GetTotalDroppedPackets(), queue->marks});
        }
        return use;
    }

    uint64_t Events() const { return Simulator::GetEventCount(); }

  private:
    struct Link
    {
        uint32_t tail;
        uint32_t head;
        uint64_t bitsPerSecond;
        Ptr<PointToPointNetDevice> device;
        Ptr<PointToPointChannel> channel;
        Ptr<LinkQueue> queue;
        std::deque<std::pair<uint32_t, uint32_t>> turns; // messages that begin here and their targets' addresses
        bool sending = false;
        uint64_t sent = 0;
    };

    struct Route
    {
        uint32_t number;
        uint32_t first;
        uint32_t source;
        uint32_t target;
        Ptr<Socket> socket;
        std::deque<uint32_t> unsent; // messages, the first in part
        std::deque<uint32_t> missing;
    };

    Ptr<PointToPointNetDevice> AddDevice(uint32_t node, Ptr<PointToPointChannel> channel, Ptr<Queue<Packet>> queue)
    {
        Ptr<PointToPointNetDevice> device = CreateObject<PointToPointNetDevice>();
        device->SetAddress(Mac48Address::Allocate());
        device->SetQueue(queue);
        device->SetMtu(65535);
        m_nodes[node]->AddDevice(device);
        device->Attach(channel);
        Ptr<Ipv4> ipv4 = m_nodes[node]->GetObject<Ipv4>();
        ipv4->SetUp(ipv4->AddInterface(device));
        return device;
    }

    void AddWay(uint32_t address, const std::vector<uint32_t>& links)
    {
        for (uint32_t link : links)
        {
            m_ways[m_links[link].tail]->Add(address, m_links[link].device);
        }
        m_ways[m_links[links.back()].head]->Add(address, nullptr);
    }

    /// Messages of a route leave one after the other.
    void QueueUdp(uint32_t number, Route& route)
    {
        route.unsent.push_back(number);
        if (route.unsent.size() == 1)
        {
            StartUdp(number, route);
        }
    }

    void StartUdp(uint32_t number, const Route& route)
    {
        Link& link = m_links[route.first];
        link.turns.emplace_back(number, THERE + route.number);
        UdpAt(route.target);
        if (m_fair ? !link.queue->IsBusy() : !link.sending)
        {
            link.sending = true; // others that begin at this ps take their turns, too
            Simulator::ScheduleNow([this, &link]() {
                if (!m_fair)
                {
                    Pace(link);
                }
                else if (!link.queue->IsBusy())
                {
                    link.queue->Draw();
                }
            });
        }
    }

    /// Send packets at the rate of the link, whatever else is sent there.
    void Pace(Link& link)
    {
        const uint64_t before = link.sent;
        link.sending = SendUdp(link);
        if (link.sending)
        {
            Simulator::Schedule(DataRate(link.bitsPerSecond).CalculateBytesTxTime(link.sent - before), [this, &link]() { Pace(link); });
        }
    }

    /// Send a packet of the message whose turn it is; false: there is none.
    bool SendUdp(Link& link)
    {
        if (link.turns.empty())
        {
            return false;
        }
        const auto [number, address] = link.turns.front();
        link.turns.pop_front();
        Message& message = m_messages[number];
        const uint32_t size = std::min<int64_t>(message.unsent, m_segment);
        message.unsent -= size;
        std::deque<uint32_t>& unsent = m_routes.at(address - THERE).unsent;
        if (message.unsent == 0)
        {
            unsent.pop_front();
        }
        if (!unsent.empty())
        {
            link.turns.emplace_back(unsent.front(), address);
        }
        Ptr<Packet> packet = Create<Packet>(size);
        MessageTag tag;
        tag.number = number;
        packet->AddPacketTag(tag);
        UdpAt(link.tail)->SendTo(packet, 0, InetSocketAddress(Ipv4Address(address), PORT));
        link.sent += size + UDP_HEADERS;
        return true;
    }

    Ptr<Socket> UdpAt(uint32_t node)
    {
        if (!m_sockets[node])
        {
            m_sockets[node] = Socket::CreateSocket(m_nodes[node], UdpSocketFactory::GetTypeId());
            m_sockets[node]->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
            m_sockets[node]->SetRecvCallback(Callback<void, Ptr<Socket>>([this](Ptr<Socket> socket) {
                MessageTag tag;
                while (Ptr<Packet> packet = socket->Recv())
                {
                    packet->PeekPacketTag(tag);
                    Got(tag.number, packet->GetSize());
                }
            }));
        }
        return m_sockets[node];
    }

    void Connect(Route& route)
    {
        ListenAt(route.target);
        route.socket = Socket::CreateSocket(m_nodes[route.source], TcpSocketFactory::GetTypeId());
        route.socket->Bind(InetSocketAddress(Ipv4Address(BACK + route.number), PORT));
        route.socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>([this, &route](Ptr<Socket>, uint32_t) { Fill(route); }));
        // One by one, so that short queues drop none.
        Simulator::Schedule(MicroSeconds(route.number), [&route]() {
            route.socket->Connect(InetSocketAddress(Ipv4Address(THERE + route.number), PORT));
        });
    }

    void StartTcp(uint32_t number, Route& route)
    {
        route.unsent.push_back(number);
        route.missing.push_back(number);
        Fill(route);
    }

    void Fill(Route& route)
    {
        while (!route.unsent.empty())
        {
            Message& message = m_messages[route.unsent.front()];
            const int64_t size = std::min<int64_t>({message.unsent, route.socket->GetTxAvailable(), 1 << 20});
            if (size == 0)
            {
                return;
            }
            // It may call back and find the message shorter.
            message.unsent -= size;
            if (message.unsent == 0)
            {
                route.unsent.pop_front();
            }
            route.socket->Send(Create<Packet>(size));
        }
    }

    void ListenAt(uint32_t node)
    {
        if (m_sockets[node])
        {
            return;
        }
        m_sockets[node] = Socket::CreateSocket(m_nodes[node], TcpSocketFactory::GetTypeId());
        m_sockets[node]->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        m_sockets[node]->Listen();
        m_sockets[node]->SetAcceptCallback(
            MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
            Callback<void, Ptr<Socket>, const Address&>([this](Ptr<Socket> open, const Address& from) {
                Route& route = m_routes.at(InetSocketAddress::ConvertFrom(from).GetIpv4().Get() - BACK);
                open->SetRecvCallback(Callback<void, Ptr<Socket>>([this, &route](Ptr<Socket> socket) { Read(route, socket); }));
            }));
    }

    void Read(Route& route, Ptr<Socket> socket)
    {
        Ptr<Packet> packet = socket->Recv();
        for (int64_t size = packet ? packet->GetSize() : 0; size > 0;)
        {
            const uint32_t number = route.missing.front();
            const int64_t part = std::min(size, m_messages[number].missing);
            if (part == m_messages[number].missing)
            {
                route.missing.pop_front();
            }
            Got(number, part);
            size -= part;
        }
    }

    void Got(uint32_t number, int64_t size)
    {
        Message& message = m_messages[number];
        message.missing -= size;
        if (message.missing == 0)
        {
            m_arrived.push_back(message.cookie);
            StopAfterThis();
        }
    }

    /// Stop when what is due at this ps has happened.
    void StopAfterThis()
    {
        if (!m_stopped)
        {
            m_stopped = true;
            Simulator::ScheduleNow([]() { Simulator::Stop(); });
        }
    }

    bool m_fair;
    bool m_udp;
    uint32_t m_segment;
    uint32_t m_mark;
    bool m_stopped = false;
    std::vector<Ptr<Node>> m_nodes;
    std::vector<Ptr<Ways>> m_ways;
    std::vector<Ptr<Socket>> m_sockets; // of each node, where what is sent to it arrives
    std::deque<Link> m_links;           // stays in place while it grows
    std::unordered_map<uint32_t, Route> m_routes;
    std::vector<Message> m_messages;
    std::deque<int64_t> m_arrived;
};

} // namespace armillary
