// What our packets need in ns-3's nodes: ways, queues and tags. Compiled by cppyy, see library.py.

#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/internet-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-layer.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace armillary
{

using namespace ns3;

// Packets of route r go to address THERE + r and what answers them to BACK + r: every route has ways of its own.
const uint32_t THERE = 0x0A000000;
const uint32_t BACK = 0x0B000000;
const uint32_t OTHER = THERE ^ BACK;
const uint16_t PORT = 9;
const uint8_t TTL = 255;
const uint32_t UDP_HEADERS = 8 + 20 + 2; // UDP, IPv4, PPP

/// Says which message the bytes of a datagram are of.
class MessageTag : public Tag
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("armillary::MessageTag").SetParent<Tag>().AddConstructor<MessageTag>();
        return id;
    }

    TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return 4; }
    void Serialize(TagBuffer to) const override { to.WriteU32(number); }
    void Deserialize(TagBuffer from) override { number = from.ReadU32(); }
    void Print(std::ostream& to) const override { to << number; }

    uint32_t number = 0;
};

/// The next device for every address, or none for what is at home here.
class Ways : public Ipv4RoutingProtocol
{
  public:
    void Add(uint32_t address, Ptr<NetDevice> device)
    {
        Ptr<Ipv4Route> way;
        if (device)
        {
            way = Create<Ipv4Route>();
            way->SetDestination(Ipv4Address(address));
            way->SetSource(Ipv4Address(address ^ OTHER));
            way->SetGateway(Ipv4Address::GetAny());
            way->SetOutputDevice(device);
        }
        m_ways[address] = way;
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>, Socket::SocketErrno& error) override
    {
        auto found = m_ways.find(header.GetDestination().Get());
        error = found == m_ways.end() ? Socket::ERROR_NOROUTETOHOST : Socket::ERROR_NOTERROR;
        return found == m_ways.end() ? nullptr : found->second;
    }

    bool RouteInput(Ptr<const Packet> packet,
                    const Ipv4Header& header,
                    Ptr<const NetDevice> device,
                    const UnicastForwardCallback& forward,
                    const MulticastForwardCallback&,
                    const LocalDeliverCallback& deliver,
                    const ErrorCallback&) override
    {
        auto found = m_ways.find(header.GetDestination().Get());
        if (found == m_ways.end())
        {
            return false;
        }
        if (found->second)
        {
            forward(found->second, packet, header);
        }
        else
        {
            deliver(packet, header, m_ipv4->GetInterfaceForDevice(device));
        }
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> ipv4) override { m_ipv4 = ipv4; }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

  private:
    void DoDispose() override
    {
        m_ways.clear();
        m_ipv4 = nullptr;
        Ipv4RoutingProtocol::DoDispose();
    }

    std::unordered_map<uint32_t, Ptr<Ipv4Route>> m_ways;
    Ptr<Ipv4> m_ipv4;
};

/// Drop-tail, but for what begins at its own node, as a host holds back what its device cannot take; marks ECN-capable packets that come when at least `mark` bytes wait (RFC 8257, section 3.1), 0: none.
class LinkQueue : public DropTailQueue<Packet>
{
  public:
    LinkQueue(int64_t limit, uint32_t mark) : m_limit(limit), m_mark(mark) {}

    bool Enqueue(Ptr<Packet> packet) override
    {
        PppHeader outer;
        Ipv4Header inner;
        if (GetNBytes() + int64_t(packet->GetSize()) > m_limit)
        {
            Ptr<Packet> copy = packet->Copy();
            copy->RemoveHeader(outer);
            copy->RemoveHeader(inner);
            if (inner.GetTtl() < TTL)
            {
                DropBeforeEnqueue(packet);
                return false;
            }
        }
        if (m_mark && GetNBytes() >= m_mark)
        {
            packet->RemoveHeader(outer);
            packet->RemoveHeader(inner);
            if (inner.GetEcn() != Ipv4Header::ECN_NotECT)
            {
                inner.SetEcn(Ipv4Header::ECN_CE);
                marks++;
            }
            packet->AddHeader(inner);
            packet->AddHeader(outer);
        }
        if (m_drawing)
        {
            m_drawn = packet;
        }
        const bool taken = m_drawing || DropTailQueue<Packet>::Enqueue(packet);
        bytes += taken ? packet->GetSize() : 0;
        depth = std::max<int64_t>(depth, GetNBytes());
        return taken;
    }

    /// What waits here and, if there is a source, what it draws from that, take turns.
    Ptr<Packet> Dequeue() override
    {
        Ptr<Packet> packet = m_drawn;
        m_drawn = nullptr;
        if (packet)
        {
            m_busy = true;
            return packet;
        }
        // The device does not expect that nothing comes when it was idle.
        if (m_busy && (m_own || IsEmpty()) && Draw())
        {
            return nullptr;
        }
        packet = DropTailQueue<Packet>::Dequeue();
        m_busy = bool(packet);
        m_own = true;
        return packet;
    }

    /// Let the source send through the device, which is idle; false: it has nothing.
    bool Draw()
    {
        m_drawing = true;
        const bool drawn = source && source();
        m_drawing = false;
        m_own = m_own && !drawn;
        return drawn;
    }

    bool IsBusy() const { return m_busy; }

    std::function<bool()> source;
    int64_t bytes = 0; // 64 bits, other than ns-3's own count
    int64_t depth = 0;
    int64_t marks = 0;

  private:
    int64_t m_limit;
    uint32_t m_mark;
    bool m_busy = false;
    bool m_own = true;
    bool m_drawing = false;
    Ptr<Packet> m_drawn;
};

} // namespace armillary
