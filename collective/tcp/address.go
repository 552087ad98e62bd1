package tcp

import (
	"fmt"
	"net"
	"strings"
)

// Where says at which address this node is reached: an interface's name or an address. Both empty: the address that the default route
// uses, else the first that is not loopback.
type Where struct{ Interface, Address string }

// find returns an IP address of this machine.
func (w Where) find() (net.IP, error) {
	if w.Address != "" {
		ip := net.ParseIP(w.Address)
		if ip == nil {
			return nil, fmt.Errorf("RAYGO_COLLECTIVE_ADDRESS is %q, which is not an IP address", w.Address)
		}
		return ip, nil
	}
	if w.Interface != "" {
		return w.ofInterface()
	}
	// Nothing is sent: the kernel only picks the address that it would send from.
	if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).IP, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("the addresses of this machine: %w", err)
	}
	if ip := best(all); ip != nil {
		return ip, nil
	}
	return net.IPv4(127, 0, 0, 1), nil
}

// ofInterface takes a list of names, as gloo's and NCCL's variables do: the first that is there and has an address.
func (w Where) ofInterface() (net.IP, error) {
	var have []string
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("the network interfaces of this machine: %w", err)
	}
	for _, name := range strings.Split(w.Interface, ",") {
		name = strings.TrimSpace(strings.TrimPrefix(name, "="))
		for _, i := range all {
			if i.Name != name {
				continue
			}
			addresses, err := i.Addrs()
			if err != nil {
				return nil, fmt.Errorf("the addresses of %s: %w", name, err)
			}
			if ip := best(addresses); ip != nil {
				return ip, nil
			}
			for _, a := range addresses { // loopback was asked for
				if n, ok := a.(*net.IPNet); ok {
					return n.IP, nil
				}
			}
		}
	}
	for _, i := range all {
		have = append(have, i.Name)
	}
	return nil, fmt.Errorf("no network interface %q with an address; this machine has %s. Set RAYGO_COLLECTIVE_INTERFACE", w.Interface, strings.Join(have, ", "))
}

// best prefers IPv4 to IPv6, and takes no address that others cannot reach.
func best(addresses []net.Addr) net.IP {
	var six net.IP
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if n.IP.To4() != nil {
			return n.IP
		}
		if six == nil {
			six = n.IP
		}
	}
	return six
}
