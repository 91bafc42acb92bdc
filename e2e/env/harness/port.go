package harness

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Port is a reserved loopback port without a listener. No other process is assigned it until Release; a process can
// listen on it explicitly with SO_REUSEPORT.
type Port struct {
	// Address is host:port.
	Address string
	Number  int
	socket  *os.File
}

// HoldPort reserves a free port.
func HoldPort() (Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Port{}, fmt.Errorf("hold a port: %w", err)
	}
	p := Port{socket: os.NewFile(uintptr(fd), "port")}
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: host.As4()})
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	address, ok := bound.(*unix.SockaddrInet4)
	if err != nil || !ok {
		p.Release()
		return Port{}, fmt.Errorf("hold a port: bound to %v: %w", bound, err)
	}
	p.Number = address.Port
	p.Address = netip.AddrPortFrom(host, uint16(address.Port)).String()
	return p, nil
}

// Release releases the port.
func (p Port) Release() { _ = p.socket.Close() }
