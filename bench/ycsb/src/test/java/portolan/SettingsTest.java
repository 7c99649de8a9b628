package portolan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import site.ycsb.DBException;

class SettingsTest {
  private static Settings of(String... pairs) throws DBException {
    Properties properties = new Properties();
    for (int i = 0; i < pairs.length; i += 2) {
      properties.setProperty(pairs[i], pairs[i + 1]);
    }
    return Settings.of(properties);
  }

  @Test
  void nothingNeedsToBeSaid() throws DBException {
    Settings settings = of();
    assertEquals(List.of(new Settings.Address("127.0.0.1", 7379)), settings.nodes());
    assertEquals("local:", settings.localPrefix());
    assertEquals("global:", settings.globalPrefix());
    assertEquals(0.5, settings.globalProportion());
  }

  @Test
  void aSiteKnowsOnlyItsOwnNodes() throws DBException {
    Settings second = of("portolan.hosts", "a:1,a:2;b:3, [::1]:4", "portolan.site", "2");
    assertEquals(
        List.of(new Settings.Address("b", 3), new Settings.Address("::1", 4)), second.nodes());
  }

  @ParameterizedTest
  @CsvSource({
    "portolan.hosts, localhost",
    "portolan.hosts, :1",
    "portolan.hosts, a:0",
    "portolan.hosts, a:65536",
    "portolan.hosts, 'a:1,'",
    "portolan.site, 0",
    "portolan.site, 2",
    "portolan.global_proportion, 1.1",
    "portolan.global_proportion, half",
    "portolan.global_proportion, NaN",
    "portolan.timeout_ms, 0",
    "portolan.global_prefix, local:",
    "portolan.proportion, 0.5",
    "portolan.user, without-password",
  })
  void whatMakesNoSenseIsRefused(String name, String value) {
    assertThrows(DBException.class, () -> of(name, value));
  }
}
