package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"firsttap/dispatch/webhook"
)

// lookupTimeout bounds the look-up of a name that is to be registered.
const lookupTimeout = 3 * time.Second

// Check reports whether an endpoint may be registered with that URL. The error is webhook.ErrNotAllowed if no delivery would be sent there,
// webhook.ErrNoAddress if its name has no address, webhook.ErrNotLookedUp if no name server said whether it has one, and another one if it
// is no URL. The error's text tells the author of the URL what to change.
func (c *Client) Check(ctx context.Context, rawURL string) error {
	u, err := c.parse(rawURL)
	if err != nil || c.options.AllowPrivate {
		return err
	}
	host := hostOf(u)
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // parse has checked it
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := c.options.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return lookupError(host, err)
	}
	for _, a := range addresses {
		if err := c.checkAddress(a.Unmap()); err != nil {
			return err
		}
	}
	return nil
}

// parse returns the URL if a delivery may be sent there, as far as the URL alone says.
func (c *Client) parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("this is not a URL")
	}
	host := hostOf(u)
	port, portErr := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !c.options.AllowPrivate):
		return nil, notAllowed("the URL has to begin with https://")
	case host == "":
		return nil, notAllowed("the URL has no host")
	case u.User != nil:
		return nil, notAllowed("the URL has a user or a password, which are not sent")
	case u.Port() != "" && (portErr != nil || port == 0):
		return nil, notAllowed("%s is not a port", u.Port())
	case strings.IndexFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f }) >= 0:
		return nil, notAllowed("the host has to be in ASCII; other letters are written as xn--")
	case c.options.AllowPrivate:
		return u, nil
	}
	address, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		return u, c.checkAddress(address)
	case endsInNumber(host):
		return nil, notAllowed("%q is neither a name nor an IP address in its usual form", host)
	}
	return u, nil
}

// hostOf returns the URL's host without the dots behind it: 127.0.0.1. is 127.0.0.1 too.
func hostOf(u *url.URL) string { return strings.TrimRight(u.Hostname(), ".") }

// endsInNumber reports whether some programs read the host as an IPv4 address: 2130706433, 0x7f.1 and 0177.0.0.1 are 127.0.0.1 to them.
func endsInNumber(host string) bool {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	digits, hex := strings.CutPrefix(last, "0x")
	allowed := "0123456789"
	if hex {
		allowed += "abcdef"
	}
	return strings.Trim(digits, allowed) == ""
}

// checkConnection is called with the address of a connection before it is opened.
func (c *Client) checkConnection(network, address string, conn syscall.RawConn) error {
	if err := c.guard.Safe(network, address, conn); err != nil {
		return notPublic(address)
	}
	return nil
}

func (c *Client) checkAddress(a netip.Addr) error {
	if c.guard.SafeAddr(a) != nil {
		return notPublic(a.String())
	}
	return nil
}

func notPublic(address string) error {
	return notAllowed("%s is not an address on the public Internet", address)
}

// lookupError leaves out which server was asked.
func lookupError(host string, err error) error {
	cause, kind := err.Error(), webhook.ErrNotLookedUp
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		cause = dns.Err
		if dns.IsNotFound {
			kind = webhook.ErrNoAddress
		}
	}
	return fmt.Errorf("%w: the name %q can't be looked up: %s", kind, host, cause)
}

func notAllowed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{webhook.ErrNotAllowed}, args...)...)
}
