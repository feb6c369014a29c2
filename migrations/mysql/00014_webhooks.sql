-- +goose Up
-- Endpoints of other systems that get events. replay_from and replay_until are the events between which a replay still goes on, NULL if
-- none does. A deleted endpoint's row stays, without its URL and secrets, until its deliveries are deleted too.
CREATE TABLE webhooks (
  id              VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  url             VARCHAR(2000) NOT NULL,
  events          VARCHAR(1000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  description     VARCHAR(1000) NOT NULL,
  status          VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  pause_reason    VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  failing_since   BIGINT        NULL,
  secret          VARCHAR(200)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  previous_secret VARCHAR(200)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  previous_until  BIGINT        NULL,
  replay_from     VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NULL,
  replay_until    VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NULL,
  version         INT           NOT NULL,
  created_at      BIGINT        NOT NULL,
  updated_at      BIGINT        NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- The deliveries of one dispatch to one endpoint are a lane. It has a row while some of them are pending; next_at is when the earliest
-- of these is to be sent, or when its lease ends.
CREATE TABLE webhook_lanes (
  webhook_id  VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  next_at     BIGINT      NOT NULL,
  claim       VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (webhook_id, dispatch_id),
  KEY ix_webhook_lanes_due (webhook_id, next_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- A test has the event's identifier as its dispatch. attempt counts the attempts since the delivery was written or sent again.
CREATE TABLE webhook_deliveries (
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  webhook_id  VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  event_id    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status      VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  body        MEDIUMBLOB  NOT NULL,
  attempts    MEDIUMTEXT  NOT NULL,
  attempt     INT         NOT NULL,
  created_at  BIGINT      NOT NULL,
  PRIMARY KEY (dispatch_id, webhook_id, event_id),
  KEY ix_webhook_deliveries_event (webhook_id, event_id),
  KEY ix_webhook_deliveries_status (webhook_id, status, event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TABLE webhook_lanes;
DROP TABLE webhooks;
