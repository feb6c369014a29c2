package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxDrain is more than a load balancer needs to notice, and less than the time after which a supervisor kills the process.
const maxDrain = time.Minute

func readDrain(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > maxDrain) {
		err = fmt.Errorf("%s is not from 0 to %s", d, maxDrain)
	}
	return d, err
}

// migrateVar names the setting that Migrate comes from.
const migrateVar = "FIRSTTAP_MIGRATE"

func readMigrate(s string) (atStart bool, err error) {
	switch s {
	case "auto":
		return true, nil
	case "off":
		return false, nil
	}
	return false, errors.New("want auto or off")
}

const rolesVar = "FIRSTTAP_ROLES"

// The roles of an instance: it serves the API and the pages, sends pushes and webhooks, or runs the scheduled jobs.
const (
	RoleAPI   = "api"
	RoleRelay = "relay"
	RoleJobs  = "jobs"
)

// readRoles returns the roles in the order of the list above.
func readRoles(s string) (roles []string, err error) {
	given := splitList(s)
	for _, role := range []string{RoleAPI, RoleRelay, RoleJobs} {
		if slices.Contains(given, role) {
			roles = append(roles, role)
		}
	}
	if len(roles) != len(given) || len(given) == 0 {
		return nil, errors.New("want api, relay and jobs, or some of them, each once and separated by commas")
	}
	return roles, nil
}

// Has reports whether the instance has the role.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }

// privateWebhooksVar names the setting that PrivateWebhooks comes from.
const privateWebhooksVar = "FIRSTTAP_WEBHOOK_ALLOW_PRIVATE"

func readBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("want true or false")
}

// allowedOriginsVar names the setting that AllowedOrigins comes from.
const allowedOriginsVar = "FIRSTTAP_ALLOWED_ORIGINS"

// origin matches an origin as browsers send it: in small letters, and without a path.
var origin = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[a-z0-9.-]+(:[0-9]{1,5})?$|^[a-z][a-z0-9+.-]*://\[[0-9a-f:.]+\](:[0-9]{1,5})?$`)

// checkOrigins returns an error for an origin that no browser would send, so that it would allow nothing.
func checkOrigins(origins []string) error {
	for _, o := range origins {
		scheme, _, _ := strings.Cut(o, ":")
		if !origin.MatchString(o) {
			return fmt.Errorf(
				"%q is no origin: want scheme://host in small letters, such as capacitor://localhost or https://app.example.com, "+
					"without a path or *",
				o,
			)
		}
		if port := map[string]string{"http": ":80", "https": ":443"}[scheme]; port != "" && strings.HasSuffix(o, port) {
			return fmt.Errorf("%q has the usual port, which browsers leave out: want %q", o, strings.TrimSuffix(o, port))
		}
	}
	return nil
}

// The variables of the OpenTelemetry SDK that turn tracing on and off. The SDK reads its other variables itself: headers,
// timeout, certificates, sampler, queue, resource.
const (
	otlpEndpointVar       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTracesEndpointVar = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	otlpProtocolVar       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	otlpTracesProtocolVar = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	tracesExporterVar     = "OTEL_TRACES_EXPORTER"
	sdkDisabledVar        = "OTEL_SDK_DISABLED"
)

// readTracing reports whether requests are traced: an endpoint is set, and no other variable turns tracing off.
func readTracing(get func(name, otherwise string) string, bad func(name string, err error)) bool {
	wanted := false
	for _, name := range []string{otlpEndpointVar, otlpTracesEndpointVar} {
		endpoint := get(name, "")
		if endpoint == "" {
			continue
		}
		wanted = true
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			bad(name, errors.New("want a URL like http://127.0.0.1:4318"))
		}
	}
	for _, name := range []string{otlpProtocolVar, otlpTracesProtocolVar} {
		if get(name, "http/protobuf") != "http/protobuf" {
			bad(name, errors.New("want http/protobuf, the only supported protocol"))
		}
	}
	switch get(tracesExporterVar, "otlp") {
	case "otlp":
	case "none":
		wanted = false
	default:
		bad(tracesExporterVar, errors.New("want otlp or none"))
	}
	return wanted && !strings.EqualFold(get(sdkDisabledVar, ""), "true")
}
