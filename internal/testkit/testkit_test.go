package testkit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const reserveIn = "FIRSTTAP_RESERVE"

// A reserved port is nobody else's, in this process or another, until it is free.
func TestReservePort(t *testing.T) {
	if os.Getenv(reserveIn) != "" {
		fmt.Println(reserveAll(t))
		return
	}
	mine := map[string]bool{}
	for _, port := range reserveAll(t) {
		if mine[port] {
			t.Errorf("port %s was reserved twice", port)
		}
		mine[port] = true
	}
	other := exec.Command(os.Args[0], "-test.run=^TestReservePort$")
	other.Env = append(os.Environ(), reserveIn+"=1")
	out, err := other.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	theirs := strings.Fields(strings.Trim(strings.SplitN(string(out), "\n", 2)[0], "[]"))
	if len(theirs) != reserved {
		t.Fatalf("another process: %s", out)
	}
	for _, port := range theirs {
		if mine[port] {
			t.Errorf("port %s was reserved by two processes", port)
		}
	}
}

// reserved is how many ports a process reserves here: of 22,000, two processes would choose some twice.
const reserved = 400

func reserveAll(t *testing.T) (ports []string) {
	for range reserved {
		_, port, err := net.SplitHostPort(FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 10000 || n >= 32000 {
			t.Errorf("port %s is one that the kernel hands out", port)
		}
		ports = append(ports, port)
	}
	return ports
}
