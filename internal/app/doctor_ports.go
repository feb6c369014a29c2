package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"firsttap/internal/doctor"
)

// listeners checks that an instance could listen, or does.
func (x *examination) listeners(ctx context.Context) {
	for _, l := range []struct{ check, setting, addr, path, mark string }{
		{"ports.api", "FIRSTTAP_ADDR", x.config.Addr, "/openapi.json", `"FirstTap`},
		{"ports.operations", "FIRSTTAP_OPS_ADDR", x.config.OpsAddr, "/metrics", "firsttap_"},
	} {
		switch {
		case x.wrong[l.setting]:
			x.Skip(l.setting, l.check)
		case l.addr == "":
			x.Add(l.check, doctor.Good("turned off: no metrics"))
		default:
			x.Check(ctx, l.check, func(ctx context.Context) doctor.Finding {
				return examinePort(ctx, l.addr, l.setting, l.path, l.mark)
			})
		}
	}
}

// examinePort listens at addr for a moment. If another process does, it is FirstTap if the page at path contains mark.
func examinePort(ctx context.Context, addr, setting, path, mark string) doctor.Finding {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		l.Close()
		return doctor.Good(addr + " is free")
	case !errors.Is(err, syscall.EADDRINUSE):
		return doctor.Failure(err.Error(), "set "+setting+" to an address and port of this machine that its user may listen at")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return doctor.Failure(err.Error(), "correct "+setting)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port)
	if _, page, err := fetch(ctx, url+path); err != nil || !strings.Contains(page, mark) {
		return doctor.Failure("another program listens at "+addr, "stop it, or set "+setting+" to another port: ss -ltnp shows who it is")
	}
	if path == "/metrics" {
		return doctor.Good("a FirstTap listens at " + addr)
	}
	status, page, err := fetch(ctx, url+"/readyz")
	found := fmt.Sprintf("a FirstTap listens at %s; /readyz says %d %s", addr, status, cmp.Or(strings.TrimSpace(page), fmt.Sprint(err)))
	if status != http.StatusOK {
		return doctor.Doubt(found, "see its log, and the lines below")
	}
	return doctor.Good(found)
}

// fetch returns the status and the beginning of a page.
func fetch(ctx context.Context, url string) (status int, page string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	const enough = 1 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, enough))
	return resp.StatusCode, string(text), err
}
