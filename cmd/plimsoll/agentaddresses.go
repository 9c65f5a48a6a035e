package main

import (
	"net/netip"

	"github.com/plimsoll-dev/plimsoll"
)

// agentAddressFlags belong to the commands that call agents.
type agentAddressFlags struct {
	AgentAddresses []string `help:"Network in which the gateway may call agents for logs, such as 10.0.0.0/8; repeat it for more. Outside it, an agent is called only at the address that it calls from." placeholder:"CIDR"`
}

func (f *agentAddressFlags) agentNetworks() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range f.AgentAddresses {
		prefix, err := netip.ParsePrefix(text)
		if ip, single := netip.ParseAddr(text); single == nil {
			prefix, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return nil, plimsoll.Invalid("agent-addresses", "%q is not a network; write for example 10.0.0.0/8", text)
		}
		all = append(all, prefix)
	}
	return all, nil
}
