package firsttap;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.mariadb.jdbc.MariaDbPoolDataSource;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * Holds locks for the tests of loadtest/locks, as the lines on its standard input say, and answers each with a line. peer_test.go there
 * has the protocol, and the same in Go. It ends with its standard input.
 */
public final class Peer {
    /** A kind of lock. */
    interface Locks {
        /** Takes the name within the wait. What it returns frees the name, on the same thread; it is null if another owner has the name. */
        Runnable lock(String name, Duration atMost, Duration atLeast, Duration wait) throws Exception;
    }

    private final Locks locks;
    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    private final Map<String, Runnable> held = new HashMap<>();

    private Peer(Locks locks) {
        this.locks = locks;
    }

    /** The arguments are the kind of locks, where their server is, and the environment in ShedLock's keys or Redisson's lease in ms. */
    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(switch (args[0]) {
            case "table" -> shedLock(table(args[1]));
            case "redis" -> shedLock(redis(args[1], args[2], true));
            case "redis-default" -> shedLock(redis(args[1], args[2], false));
            case "redisson" -> redisson(args[1], Long.parseLong(args[2]));
            default -> throw new IllegalArgumentException(args[0]);
        });
        for (String line = peer.in.readLine(); line != null; line = peer.in.readLine()) {
            String answer;
            try {
                answer = peer.answer(line.split(" "));
            } catch (Exception e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0); // the clients have threads of their own
    }

    private static LockProvider table(String url) throws Exception {
        return new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(new JdbcTemplate(new MariaDbPoolDataSource(url)))
                .usingDbTime()
                .build());
    }

    private static LockProvider redis(String address, String environment, boolean safeUpdate) {
        LettuceConnectionFactory connections = new LettuceConnectionFactory(address.split(":")[0], Integer.parseInt(address.split(":")[1]));
        connections.afterPropertiesSet();
        connections.start();
        return new RedisLockProvider.Builder(connections).environment(environment).safeUpdate(safeUpdate).build();
    }

    private static Locks shedLock(LockProvider provider) {
        return (name, atMost, atLeast, wait) -> provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast))
                .map(lock -> (Runnable) lock::unlock)
                .orElse(null);
    }

    /** Without a lease time, the watchdog renews a lock until it is unlocked, so atMost and atLeast do not count. */
    private static Locks redisson(String address, long lease) {
        Config config = new Config().setLockWatchdogTimeout(lease);
        config.useSingleServer().setAddress("redis://" + address);
        RedissonClient client = Redisson.create(config);
        return (name, atMost, atLeast, wait) -> {
            RLock lock = client.getLock(name);
            boolean got = wait.isZero() ? lock.tryLock() : lock.tryLock(wait.toMillis(), TimeUnit.MILLISECONDS);
            return got ? lock::unlock : null;
        };
    }

    private String answer(String[] words) throws Exception {
        return switch (words[0]) {
            case "lock" -> lock(words[1], millis(words[2]), millis(words[3]), millis(words[4]));
            case "unlock" -> unlock(words[1]);
            case "turns" -> turns(Integer.parseInt(words[1]), words[2]);
            case "race" -> race(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), millis(words[4]), millis(words[5]));
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    private String lock(String name, Duration atMost, Duration atLeast, Duration wait) throws Exception {
        Runnable unlock = locks.lock(name, atMost, atLeast, wait);
        if (unlock == null) {
            return "busy";
        }
        long now = clock();
        held.put(name, unlock);
        return "held " + now;
    }

    private String unlock(String name) {
        Runnable unlock = held.remove(name);
        long now = clock();
        unlock.run();
        return "free " + now;
    }

    private String turns(int times, String name) throws Exception {
        long start = System.nanoTime();
        for (int i = 0; i < times; i++) {
            locks.lock(name, Duration.ZERO, Duration.ZERO, Duration.ZERO).run();
        }
        return "took " + (System.nanoTime() - start) / 1000;
    }

    private String race(String prefix, int names, int contenders, Duration atMost, Duration atLeast) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(contenders);
        CyclicBarrier gate = new CyclicBarrier(contenders + 1);
        CyclicBarrier asked = new CyclicBarrier(contenders);
        List<Future<Integer>> all = new ArrayList<>();
        for (int i = 0; i < contenders; i++) {
            all.add(threads.submit(() -> {
                List<Runnable> won = new ArrayList<>();
                gate.await();
                for (int n = 0; n < names; n++) {
                    Runnable unlock = locks.lock(prefix + n, atMost, atLeast, Duration.ZERO);
                    if (unlock != null) {
                        won.add(unlock);
                    }
                }
                asked.await();
                won.forEach(Runnable::run);
                return won.size();
            }));
        }
        System.out.println("ready");
        in.readLine();
        gate.await();
        long start = System.nanoTime();
        int won = 0;
        for (Future<Integer> contender : all) {
            won += contender.get();
        }
        long took = System.nanoTime() - start;
        threads.shutdown();
        return "won " + won + " " + took / 1000;
    }

    private static Duration millis(String word) {
        return Duration.ofMillis(Long.parseLong(word));
    }

    /** The machine's clock in microseconds. */
    private static long clock() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
